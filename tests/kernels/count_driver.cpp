// Calls weight products, one after the other, for callgrind to count the instructions of each
// (instruction_counts.py). Prints a line per call: type, tokens, bytes of weights.
//
//   count_driver ISA TYPE...
#include <cstdio>
#include <string_view>
#include <vector>

#include "kernels/dispatch.h"
#include "model/blocks/panel_memory.h"
#include "runtime/kernel_study/weight_sample.h"

namespace {

using namespace millrace;

constexpr std::size_t columns = 2048;
constexpr std::size_t tokens_max = 32;

struct Call {
  const KernelTable* kernels;
  DType type;
  std::size_t tokens;
  PanelScratch panels;
};

}  // namespace

// By its name callgrind knows what to count.
extern "C" [[gnu::noinline]] void counted_product(const Call& call,
                                                  const ActivationSample& activations,
                                                  const WeightRows& weights, float* y) {
  activations.multiply(*call.kernels, call.panels, call.type, false, weights, call.tokens, y);
}

namespace {

void count(const KernelTable& kernels, DType type, std::size_t tokens) {
  const std::size_t rows = tokens == 1 ? 64 : panel_tile_rows;
  const WeightSample sample(type, columns, rows * dtype_row_bytes(type, columns));
  std::vector<std::byte> weights(sample.bytes());
  sample.fill(weights.data(), 1);
  const ActivationSample activations(*supported_kernels().front(), columns, tokens);
  std::vector<float> y(tokens * sample.rows());
  const PanelMemory panels(kernels, columns, 1);
  counted_product({&kernels, type, tokens, panels.view()}, activations, sample.view(weights.data()),
                  y.data());
  std::printf("%s %zu %zu\n", dtype_info(type).name, tokens,
              static_cast<std::size_t>(sample.bytes()));
}

bool count_type(const KernelTable& kernels, std::string_view name) {
  for (std::uint32_t id = 0; id < gguf_dtype_count; ++id) {
    const DTypeInfo* info = find_dtype(id);
    if (info == nullptr || name != info->name) continue;
    count(kernels, static_cast<DType>(id), 1);
    count(kernels, static_cast<DType>(id), tokens_max);
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 1;
  const auto kernels = choose_kernels(argv[1]);
  if (!kernels) {
    std::fprintf(stderr, "%s\n", kernels.error().what.c_str());
    return 1;
  }
  for (int i = 2; i < argc; ++i)
    if (!count_type(**kernels, argv[i])) return 1;
  return 0;
}
