#include "runtime/estimate/compute_speed.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "io/pinned_memory.h"
#include "runtime/base/clock.h"
#include "runtime/base/units.h"
#include "runtime/graph/arena.h"
#include "runtime/machine.h"

namespace millrace {

namespace {

constexpr std::uint64_t part_bytes = 64 * MiB;
constexpr std::size_t columns = 2048;
constexpr std::uint64_t measure_ns = 80'000'000;

// Twice the caches, but no large part of little memory.
std::uint64_t weights_bytes() {
  const long caches = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::uint64_t wanted =
      std::clamp(2 * static_cast<std::uint64_t>(std::max(0L, caches)), 256 * MiB, 1 * GiB);
  return std::max(part_bytes,
                  round_down(std::min(wanted, read_machine().memory_available / 8), part_bytes));
}

// One token's activations in all forms.
struct Activations {
  std::vector<float> x = std::vector<float>(columns);
  std::vector<std::int8_t> q = std::vector<std::int8_t>(q8_stride(columns));
  std::vector<float> scale = std::vector<float>(q8_stride(columns) / 32);
  std::vector<std::int32_t> sum = std::vector<std::int32_t>(q8_stride(columns) / 32);
  std::vector<std::int8_t> super_q = std::vector<std::int8_t>(q8_super_stride(columns));
  std::vector<float> super_scale = std::vector<float>(q8_super_stride(columns) / 256);
  std::vector<std::int16_t> super_sum = std::vector<std::int16_t>(q8_super_stride(columns) / 16);

  explicit Activations(const KernelTable& kernels) {
    for (std::size_t i = 0; i < columns; ++i)
      x[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) / 250.0f;
    MILLRACE_CHECK(kernels.quantize_q8(x.data(), columns, q.data(), scale.data(), sum.data()));
    MILLRACE_CHECK(kernels.quantize_q8_super(x.data(), columns, super_q.data(), super_scale.data(),
                                             super_sum.data()));
  }
};

void multiply(const KernelTable& kernels, const Activations& in, DType type,
              const WeightRows& weights, float* y) {
  const auto index = static_cast<std::size_t>(type);
  if (const auto product = kernels.matmul_q8[index]; product != nullptr) {
    product(
        weights,
        {in.q.data(), in.scale.data(), in.sum.data(), q8_stride(columns), q8_stride(columns) / 32},
        1, y, weights.rows);
  } else if (const auto super = kernels.matmul_q8_super[index]; super != nullptr) {
    super(weights,
          {in.super_q.data(), in.super_scale.data(), in.super_sum.data(), q8_super_stride(columns),
           q8_super_stride(columns) / 256},
          1, y, weights.rows);
  } else if (const auto plain = kernels.matmul_f32[index]; plain != nullptr) {
    plain(weights, {in.x.data(), columns}, 1, y, weights.rows);
  }
}

// Rates of passes over the memory, ascending, in bytes per second; `pass` gives the bytes that it
// took.
template <class Pass>
std::vector<double> pass_rates(Pass pass) {
  std::vector<double> rates;
  const std::uint64_t begin = system_clock().now_ns();
  while (rates.size() < 3 || system_clock().now_ns() - begin < measure_ns) {
    const std::uint64_t start = system_clock().now_ns();
    const auto bytes = static_cast<double>(pass());
    const std::uint64_t ns = std::max<std::uint64_t>(1, system_clock().now_ns() - start);
    rates.push_back(bytes / (static_cast<double>(ns) * 1e-9));
  }
  std::sort(rates.begin(), rates.end());
  return rates;
}

}  // namespace

Result<ComputeSpeed> measure_compute(const KernelTable& kernels, DType expert_type,
                                     DType trunk_type, unsigned threads) {
  PinnedMemory memory;
  MILLRACE_ASSIGN(const std::vector<PinnedBlock> parts,
                  memory.allocate(weights_bytes() / part_bytes, part_bytes));
  MILLRACE_ASSIGN(const auto arena, ComputeArena::create(threads));
  for (const PinnedBlock& part : parts)
    std::memset(part.data, 0x38, part_bytes);  // ordinary numbers in every type
  const Activations activations(kernels);
  ComputeSpeed speed;
  speed.threads = threads;
  std::atomic<std::uint64_t> sink = 0;
  const auto rate_of = [&](DType type) {
    const std::size_t row_bytes = dtype_row_bytes(type, columns);
    const std::size_t rows = part_bytes / row_bytes;
    std::vector<float> y(rows);
    const std::vector<double> rates = pass_rates([&] {
      for (const PinnedBlock& part : parts)
        arena->run([&] {
          arena->for_ranges(rows, 64, [&](std::size_t begin, std::size_t end, unsigned) {
            const WeightRows some{part.data + begin * row_bytes, row_bytes, end - begin, columns};
            multiply(kernels, activations, type, some, y.data() + begin);
          });
        });
      return parts.size() * rows * row_bytes;
    });
    return rates[rates.size() / 2];  // what a run will see, others on the machine included
  };
  const std::vector<double> reading = pass_rates([&] {
    constexpr std::size_t step = 256 * KiB;
    for (const PinnedBlock& part : parts)
      arena->run([&] {
        arena->for_ranges(part_bytes / step, 1, [&](std::size_t begin, std::size_t end, unsigned) {
          sink += kernels.read_all(part.data + begin * step, (end - begin) * step);
        });
      });
    return parts.size() * part_bytes;
  });
  speed.memory_bytes_per_second = reading.back();  // a limit: its best
  speed.expert_bytes_per_second = rate_of(expert_type);
  speed.trunk_bytes_per_second =
      trunk_type == expert_type ? speed.expert_bytes_per_second : rate_of(trunk_type);
  return speed;
}

}  // namespace millrace
