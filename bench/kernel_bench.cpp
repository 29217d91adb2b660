// Weight products of every type and ISA beside the plain read loop over the same bytes in the same
// run: one thread, weights that fit the second-level cache and weights that do not fit any cache.
// Prints GB/s of weights, the share of the read loop, the factor over scalar and whether the
// results' bits are scalar's, which must be the same for all ISAs. Exit code 1 if they differ or a
// share exceeds 1.05 (then the limit is wrong; not judged in the short --smoke run).
//
//   kernel_bench [--smoke] [--columns N] [--tokens N] [--isa NAME] [--type NAME] [--float]
#include <fmt/core.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "bench/harness.h"
#include "kernels/dispatch.h"

namespace millrace::bench {
namespace {

struct Options {
  std::size_t columns = 2048;
  std::size_t tokens = 1;
  unsigned repeats = 15;
  std::size_t cache_bytes = std::size_t{512} << 10;
  std::size_t memory_bytes = std::size_t{192} << 20;
  bool only_float = false;
  bool smoke = false;  // too short to judge a share
  std::string isa;
  std::string type;
};

struct Case {
  DType type;
  bool quantized;  // matmul_q8, else matmul_f32
  std::size_t rows;
};

constexpr DType types[] = {
    DType::mxfp4,  DType::q4_0,    DType::q8_0,   DType::q4_1,  DType::q5_0,    DType::q5_1,
    DType::iq4_nl, DType::q4_k,    DType::q5_k,   DType::q6_k,  DType::q2_k,    DType::q3_k,
    DType::iq4_xs, DType::iq2_xxs, DType::iq2_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s,
    DType::iq1_s,  DType::iq1_m,   DType::nvfp4,  DType::f16,   DType::bf16,    DType::f32};

// Where a block has its upper scale bytes: of d, and of dmin (or m) two bytes on.
struct ScalePlace {
  std::size_t offset;
  std::size_t count;
};
ScalePlace scale_place(DType type) {
  switch (type) {
    case DType::f32:
      return {3, 1};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {1, 2};
    case DType::q2_k:
      return {81, 2};
    case DType::q3_k:
      return {109, 1};
    case DType::q6_k:
      return {209, 1};
    case DType::iq1_m:
      return {49, 4};
    default:
      return {1, 1};
  }
}

// Weights with valid scales: random codes under a small half scale or a middling exponent.
void fill_weights(DType type, std::byte* data, std::size_t bytes) {
  const std::size_t unit = dtype_info(type).block_bytes;
  std::uint64_t state = 88172645463325252ull;
  for (std::size_t i = 0; i < bytes; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    data[i] = static_cast<std::byte>(state >> 32);
  }
  const std::byte high = type == DType::f32 || type == DType::bf16 ? std::byte{0x3c} : std::byte{8};
  const ScalePlace place = scale_place(type);
  for (std::size_t i = 0; i + unit <= bytes; i += unit) {
    if (type == DType::mxfp4) {
      data[i] = std::byte{120};
    } else {
      for (std::size_t j = 0; j < place.count; ++j) data[i + place.offset + 2 * j] = high;
    }
  }
}

// Activations of some tokens in all forms.
struct Inputs {
  std::vector<float> x;
  std::vector<std::int8_t> q, super_q;
  std::vector<float> scale, super_scale;
  std::vector<std::int32_t> sum;
  std::vector<std::int16_t> super_sum;
  std::size_t stride;
  std::size_t super_stride;

  explicit Inputs(const Options& options)
      : x(options.tokens * options.columns),
        stride(q8_stride(options.columns)),
        super_stride(q8_super_stride(options.columns)) {
    q.resize(options.tokens * stride);
    scale.resize(q.size() / 32);
    sum.resize(q.size() / 32);
    super_q.resize(options.tokens * super_stride);
    super_scale.resize(super_q.size() / 256);
    super_sum.resize(super_q.size() / 16);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) / 250.0f;
    const KernelTable& table = *supported_kernels().front();
    for (std::size_t t = 0; t < options.tokens; ++t) {
      const float* const from = x.data() + t * options.columns;
      const std::size_t at = t * stride;
      MILLRACE_CHECK(table.quantize_q8(from, options.columns, q.data() + at, scale.data() + at / 32,
                                       sum.data() + at / 32));
      if (options.columns % 256 != 0) continue;
      const std::size_t super_at = t * super_stride;
      MILLRACE_CHECK(table.quantize_q8_super(from, options.columns, super_q.data() + super_at,
                                             super_scale.data() + super_at / 256,
                                             super_sum.data() + super_at / 16));
    }
  }
  Q8Batch quantized() const { return {q.data(), scale.data(), sum.data(), stride, stride / 32}; }
  Q8SuperBatch supers() const {
    return {super_q.data(), super_scale.data(), super_sum.data(), super_stride, super_stride / 256};
  }
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), inputs_(options), memory_(options.memory_bytes) {}

  bool run_size(const char* label, std::size_t bytes) {
    fmt::print("{} ({} KiB of weights, {} columns, {} token{})\n", label, bytes >> 10,
               options_.columns, options_.tokens, options_.tokens == 1 ? "" : "s");
    bool good = true;
    for (const DType type : types) {
      if (!options_.type.empty() && options_.type != dtype_info(type).name) continue;
      if (options_.columns % dtype_info(type).block_elems != 0) continue;
      fill_weights(type, memory_.data(), bytes);
      const std::size_t rows = bytes / dtype_row_bytes(type, options_.columns);
      const bool blocks = dtype_info(type).block_elems > 1;
      if (blocks && !options_.only_float) good &= run_case({type, true, rows});
      if (!blocks || options_.only_float) good &= run_case({type, false, rows});
    }
    return good;
  }

 private:
  bool run_case(const Case& test) {
    const std::size_t row_bytes = dtype_row_bytes(test.type, options_.columns);
    const std::size_t bytes = test.rows * row_bytes / 8 * 8;
    const KernelTable& fastest = *supported_kernels().back();
    const double limit = measure_rates(bytes, options_.repeats, [&] {
                           sink_.add(fastest.read_all(memory_.data(), bytes));
                         }).best;
    const WeightRows weights{memory_.data(), row_bytes, test.rows, options_.columns};
    std::vector<float> y(options_.tokens * test.rows);
    double scalar = 0;
    std::uint64_t expected = 0;
    bool good = true;
    for (const KernelTable* table : supported_kernels()) {
      const bool is_scalar = table == supported_kernels().front();
      if (!options_.isa.empty() && !is_scalar && options_.isa != table->name) continue;
      const Rates rates = measure_rates(bytes, is_scalar ? 3 : options_.repeats,
                                        [&] { run_product(*table, test, weights, y.data()); });
      Checksum checksum;
      for (const float value : y) checksum.add(std::bit_cast<std::uint32_t>(value));
      if (is_scalar) scalar = rates.median, expected = checksum.value();
      const double share = rates.median / limit;
      const bool same = checksum.value() == expected;
      good &= same && (options_.smoke || share <= 1.05);
      fmt::print(
          "  {:7} {:3} {:10} {:6.2f} GB/s  {:4.2f} of read_all {:5.1f}  {:5.1f} x scalar  {}\n",
          dtype_info(test.type).name, test.quantized ? "q8" : "f32", table->name, rates.median,
          share, limit, rates.median / scalar, same ? "same bits" : "OTHER BITS");
    }
    return good;
  }

  void run_product(const KernelTable& table, const Case& test, const WeightRows& weights,
                   float* y) const {
    const auto id = static_cast<std::size_t>(test.type);
    if (!test.quantized) {
      table.matmul_f32[id](weights, {inputs_.x.data(), options_.columns}, options_.tokens, y,
                           test.rows);
    } else if (table.matmul_q8_super[id] != nullptr) {
      table.matmul_q8_super[id](weights, inputs_.supers(), options_.tokens, y, test.rows);
    } else {
      table.matmul_q8[id](weights, inputs_.quantized(), options_.tokens, y, test.rows);
    }
  }

  const Options& options_;
  Inputs inputs_;
  HugeMemory memory_;
  Checksum sink_;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--smoke") {
      options.smoke = true;
      options.repeats = 3;
      options.cache_bytes = 64 << 10;
      options.memory_bytes = 1 << 20;
      continue;
    }
    if (flag == "--float") {
      options.only_float = true;
      continue;
    }
    ++i;
    if (flag == "--columns") {
      options.columns = std::strtoul(value, nullptr, 10);
    } else if (flag == "--tokens") {
      options.tokens = std::strtoul(value, nullptr, 10);
    } else if (flag == "--isa") {
      options.isa = value;
    } else if (flag == "--type") {
      options.type = value;
    } else {
      return false;
    }
  }
  return options.columns >= 32 && options.columns % 32 == 0 && options.columns <= 65536 &&
         options.tokens >= 1 && options.tokens <= 4096;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  millrace::bench::Options options;
  if (!parse(argc, argv, options)) {
    fmt::print(stderr,
               "kernel_bench [--smoke] [--float] [--columns N (a multiple of 32)] [--tokens N] "
               "[--isa NAME] [--type NAME]\n");
    return 1;
  }
  millrace::bench::Bench bench(options);
  const bool cached = bench.run_size("In the second-level cache", options.cache_bytes);
  const bool streamed = bench.run_size("From memory", options.memory_bytes);
  return cached && streamed ? 0 : 1;
}
