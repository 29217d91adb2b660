#include "runtime/floor/drive_now.h"

#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/base/units.h"
#include "runtime/floor/read_slice.h"

namespace millrace {

namespace {

constexpr std::uint64_t probe_ns = 200'000'000;
constexpr std::uint64_t memory_bytes_max = 64 * MiB;

}  // namespace

FloorFigure drive_now(const File& file, std::uint64_t piece_bytes, std::uint32_t depth) {
  if (!file.direct() || file.size_bytes() < piece_bytes) return {};
  const std::uint64_t bytes = std::min(piece_bytes * depth, memory_bytes_max);
  const auto memory = ReadMemory::create(std::max(bytes, piece_bytes), Pages::huge);
  if (!memory) return {};
  const ReadWay way{.name = "probe", .registered = true, .huge = true};
  const ReadTarget target{&file, nullptr, memory->bytes(), {}};
  // Another part of the file each time: a host may remember what was read last.
  const SliceRequest request{piece_bytes, depth, probe_ns, system_clock().now_ns() / 1000};
  ReadTally tally;
  const auto refused = measure_slice(way, target, request, tally);
  if (!refused || !refused->empty()) return {};
  return {1, tally.bytes, tally.ns};
}

}  // namespace millrace
