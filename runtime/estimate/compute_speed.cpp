#include "runtime/estimate/compute_speed.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "io/pinned_memory.h"
#include "runtime/base/clock.h"
#include "runtime/base/units.h"
#include "runtime/graph/arena.h"
#include "runtime/kernel_study/weight_sample.h"
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

// The rows shared among the threads.
void multiply(ComputeArena& arena, const KernelTable& kernels, const ActivationSample& activations,
              DType type, const WeightRows& weights) {
  constexpr std::size_t unit = 128;  // rows of a tile that has a scale
  std::vector<float> y(weights.rows);
  arena.run([&] {
    arena.for_ranges(weights.rows, unit, [&](std::size_t begin, std::size_t end, unsigned) {
      WeightRows some = weights;
      some.rows = end - begin;
      if (type == DType::awq) {
        some.data += dtype_row_bytes(type, begin);
        some.zeros += dtype_row_bytes(type, begin);
        some.scales += begin * scale_bytes(weights.scale_type);
        return activations.multiply(kernels, {}, type, false, some, 1, y.data() + begin);
      }
      some.data += begin * weights.row_bytes;
      if (is_scaled(type)) some.scales += begin / scale_tile(type).rows * weights.scale_row_bytes;
      activations.multiply(kernels, {}, type, false, some, 1, y.data() + begin);
    });
  });
}

}  // namespace

Result<ComputeSpeed> measure_compute(const KernelTable& kernels, DType expert_type,
                                     DType trunk_type, unsigned threads) {
  MILLRACE_TRY(require_memory("measuring the kernels", weights_bytes()));
  PinnedMemory memory;
  MILLRACE_ASSIGN(const std::vector<PinnedBlock> parts,
                  memory.allocate(weights_bytes() / part_bytes, part_bytes));
  MILLRACE_ASSIGN(const auto arena, ComputeArena::create(threads));
  const ActivationSample activations(kernels, columns, 1);
  ComputeSpeed speed;
  speed.threads = threads;
  std::atomic<std::uint64_t> sink = 0;
  const auto rate_of = [&](DType type) {
    const WeightSample sample(type, columns, part_bytes);
    for (const PinnedBlock& part : parts) sample.fill(part.data, 1);
    const std::vector<double> rates = pass_rates([&] {
      for (const PinnedBlock& part : parts)
        multiply(*arena, kernels, activations, type, sample.view(part.data));
      return parts.size() * sample.bytes();
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
