#include "runtime/direct_choice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "io/alignment.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/floor/read_memory.h"
#include "runtime/presets.h"

namespace millrace {

namespace {

constexpr std::uint64_t piece_bytes = 1 * MiB;
constexpr std::uint64_t pieces = 16;
constexpr std::uint64_t smallest_pool = 256 * MiB;  // below, a run is over before it matters
// Of the memory, for the system and what the plan holds beside trunk and cache.
constexpr std::uint64_t reserve_divisor = 8;

// Bytes that the plan will pin for trunk and experts; nothing if it takes what there is.
std::optional<std::uint64_t> pinned_bytes(const ModelSpec& spec, const EngineConfig& config) {
  const auto preset = find_preset(config.preset);
  if (!preset) return std::nullopt;
  const bool free = preset->automatic && config.cache.kind == SizeSpec::Kind::unset;
  if (free) return std::nullopt;
  const std::uint64_t trunk = preset->automatic ? spec.trunk_bytes() : preset->trunk_bytes;
  const std::uint64_t pool = spec.experts.pool_bytes();
  return std::min(spec.trunk_bytes(), config.trunk.resolve(spec.trunk_bytes(), trunk)) +
         std::min(pool, config.cache.resolve(pool, preset->cache_bytes));
}

std::uint64_t file_bytes(const ModelSpec& spec) {
  std::uint64_t bytes = 0;
  for (const std::string& path : spec.files)
    if (const auto file = File::open(path, DirectMode::off)) bytes += file->size_bytes();
  return bytes;
}

// Nanoseconds of reading pieces from all over the file; nothing if one cannot be read.
std::optional<std::uint64_t> read_pieces(const File& file, std::byte* target) {
  const std::uint64_t step = round_down(file.size_bytes() / pieces, piece_bytes);
  const std::uint64_t start = system_clock().now_ns();
  for (std::uint64_t i = 0; i < pieces; ++i)
    if (pread(file.fd(), target, piece_bytes, static_cast<off_t>(i * step)) !=
        static_cast<ssize_t>(piece_bytes))
      return std::nullopt;
  return system_clock().now_ns() - start;
}

}  // namespace

DirectMode choose_direct(const ModelSpec& spec, const EngineConfig& config,
                         const Machine& machine) {
  if (config.direct != DirectMode::automatic || spec.experts.pool_bytes() < smallest_pool)
    return config.direct;
  const auto pinned = pinned_bytes(spec, config);
  if (!pinned || *pinned >= spec.trunk_bytes() + spec.experts.pool_bytes()) return config.direct;
  const std::uint64_t room = machine.memory_available - machine.memory_available / reserve_divisor;
  if (file_bytes(spec) + *pinned > room) return config.direct;
  const auto direct = File::open(spec.files.front(), DirectMode::automatic);
  const auto buffered = File::open(spec.files.front(), DirectMode::off);
  const auto memory = ReadMemory::create(piece_bytes, Pages::huge);
  if (!direct || !buffered || !memory || !direct->direct() ||
      direct->size_bytes() < pieces * piece_bytes)
    return config.direct;
  std::byte* const target = memory->bytes().data();
  const auto by_drive = read_pieces(*direct, target);
  read_pieces(*buffered, target);
  const auto again = read_pieces(*buffered, target);
  if (!by_drive || !again || *again >= *by_drive) return config.direct;
  log_info(
      fmt::format("read through the page cache: the model fits into the memory beside the "
                  "plan ({:.1f} ms for 16 MiB, {:.1f} ms from the drive)",
                  static_cast<double>(*again) * 1e-6, static_cast<double>(*by_drive) * 1e-6));
  return DirectMode::off;
}

}  // namespace millrace
