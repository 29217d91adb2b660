#include "runtime/floor/floor.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

#include "io/errno_text.h"
#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/base/counted.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/floor/read_slice.h"
#include "runtime/floor/scratch_file.h"
#include "runtime/machine.h"

namespace millrace {

namespace {

constexpr double seconds_default = 20, seconds_thorough = 240;
constexpr double grid_share = 0.6;  // of the time; the rest is for the ways
constexpr std::uint64_t memory_bytes_max = 128 * MiB;
constexpr double queue_seconds_max = 0.8;  // of a cell, however short its slices are

// The way of the grid is the engine's own; the others stand beside it.
constexpr ReadWay engine_way = {
    .name = "io_uring, fixed buffers in huge pages", .registered = true, .huge = true};
constexpr ReadWay ways[] = {
    engine_way,
    {.name = "io_uring, fixed buffers", .registered = true},
    {.name = "io_uring, plain, huge pages", .huge = true},
    {.name = "io_uring, plain"},
    {.name = "io_uring, fixed, huge, SQPOLL",
     .registered = true,
     .huge = true,
     .polling = RingPolling::submissions},
    {.name = "io_uring, fixed, huge, IOPOLL",
     .registered = true,
     .huge = true,
     .polling = RingPolling::completions},
    {.name = "threads, huge pages", .kind = ReaderKind::threads, .huge = true},
    {.name = "io_uring, plain, huge, buffered", .huge = true, .direct = false},
    {.name = "threads, huge pages, buffered",
     .kind = ReaderKind::threads,
     .huge = true,
     .direct = false},
    {.name = "mmap", .direct = false, .mapped = true},
};

struct Cell {
  std::uint64_t piece_bytes = 0;
  std::uint32_t depth = 0;
  ReadTally tally;
  bool skipped = false;  // its queue alone would take longer than it may
};

class Measurement {
 public:
  Measurement(const FloorOptions& options, ProgressLine& progress, const std::atomic<bool>& cancel)
      : options_(options), progress_(progress), cancel_(cancel) {}

  Result<FloorResult> run() {
    start_ns_ = system_clock().now_ns();
    MILLRACE_TRY(check_options());
    MILLRACE_TRY(open_files());
    MILLRACE_TRY(make_memory());
    MILLRACE_TRY(choose_grid_way());
    make_cells();
    MILLRACE_TRY(measure_cells());
    MILLRACE_TRY(measure_ways());
    fill_profile();
    add_warnings();
    return std::move(result_);
  }

 private:
  Status check_options();
  Status open_files();
  Result<std::string> file_to_read();
  Status make_memory();
  Status choose_grid_way();
  void make_cells();
  Status measure_cells();
  Status measure_cell(Cell& cell, std::uint64_t ns);
  double cell_noise() const;
  Status measure_ways();
  void fill_profile();
  void add_warnings();
  double seconds_used() const {
    return static_cast<double>(system_clock().now_ns() - start_ns_) * 1e-9;
  }
  Error named(const Error& error) const {
    return {error.code, fmt::format("{}: {}", printable(options_.path, 4096), error.what)};
  }
  const File& file() const { return direct_ ? *direct_ : *buffered_; }

  const FloorOptions& options_;
  ProgressLine& progress_;
  const std::atomic<bool>& cancel_;
  std::uint64_t start_ns_ = 0;
  double seconds_ = 0;
  std::optional<ScratchFile> scratch_;
  bool in_memory_ = false;  // tmpfs, ramfs
  std::optional<File> direct_, buffered_;
  std::optional<ReadMemory> huge_, small_;
  ReadTarget target_;
  ReadWay grid_way_ = engine_way;
  std::vector<std::uint64_t> pieces_;
  std::vector<Cell> cells_;
  std::vector<Cell> way_cells_;
  std::uint64_t turns_ = 0;
  FloorResult result_;
};

Status Measurement::check_options() {
  seconds_ = options_.seconds > 0 ? options_.seconds
                                  : (options_.thorough ? seconds_thorough : seconds_default);
  if (!(options_.seconds >= 0 && options_.seconds <= floor_seconds_max))
    return out_of_range("--seconds", fmt::format("{}", options_.seconds),
                        fmt::format("above 0 and at most {}", floor_seconds_max));
  return {};
}

// The file that was named, or one that is made in the folder that was.
Result<std::string> Measurement::file_to_read() {
  struct stat about = {};
  if (stat(options_.path.c_str(), &about) != 0)
    return named({ErrorCode::io, errno == ENOENT ? "no such file or folder" : errno_text(errno)});
  if (!S_ISDIR(about.st_mode)) return options_.path;
  MILLRACE_ASSIGN(ScratchFile scratch,
                  ScratchFile::create(
                      options_.path, options_.scratch_bytes, seconds_ * 0.3, cancel_,
                      [&](double share) { progress_.show("writing a scratch file", share, ""); }));
  progress_.clear();
  scratch_.emplace(std::move(scratch));
  return scratch_->path();
}

Status Measurement::open_files() {
  MILLRACE_ASSIGN(const Drive drive, find_drive(options_.path));
  MILLRACE_ASSIGN(const std::string path, file_to_read());
  DriveProfile& profile = result_.profile;
  profile.drive_key = drive.key;
  profile.drive_name = drive.name;
  profile.drive_model = drive.model;
  profile.file_system = drive.file_system;
  in_memory_ = drive.memory_file_system;
  if (drive.virtual_drive)
    result_.warnings.push_back(
        "the drive is a virtual machine's: its host may answer from a cache of its own, and "
        "share it with others; measure again later to see how far it varies");
  auto buffered = File::open(path, DirectMode::off);
  if (!buffered) return scratch_ ? named(buffered.error()) : buffered.error();
  if (buffered->size_bytes() == 0)
    return Error{ErrorCode::usage,
                 fmt::format("{}: is empty: name a file with something in it, or a folder, in "
                             "which a scratch file is made",
                             printable(options_.path, 4096))};
  buffered_.emplace(*std::move(buffered));
  auto direct = File::open(path, DirectMode::automatic);
  if (!direct) return scratch_ ? named(direct.error()) : direct.error();
  if (direct->direct()) direct_.emplace(*std::move(direct));
  else result_.warnings.push_back("no direct reads: " + direct->buffered_reason());
  profile.file_bytes = buffered_->size_bytes();
  profile.direct = direct_.has_value();
  return {};
}

Status Measurement::make_memory() {
  const std::uint64_t unit = std::max<std::uint64_t>(4096, file().block_bytes());
  const std::uint64_t whole = round_up(file().size_bytes(), unit);
  std::vector<std::uint64_t> sizes = {64 * KiB, 256 * KiB, 1 * MiB, 2 * MiB, 8 * MiB};
  if (options_.thorough)
    sizes = {64 * KiB, 128 * KiB, 256 * KiB, 512 * KiB, 1 * MiB, 2 * MiB, 4 * MiB, 8 * MiB};
  for (const std::uint64_t size : sizes)
    if (size <= whole && size % unit == 0) pieces_.push_back(size);
  if (pieces_.empty()) pieces_.push_back(std::bit_floor(std::min(whole, 64 * MiB)));
  const std::uint64_t available = read_machine().memory_available;
  const std::uint64_t room = std::clamp(available / 16, pieces_.back(), memory_bytes_max);
  MILLRACE_TRY(require_memory("measuring the drive", 2 * room));
  MILLRACE_ASSIGN(ReadMemory huge, ReadMemory::create(room, Pages::huge));
  MILLRACE_ASSIGN(ReadMemory small, ReadMemory::create(room, Pages::small));
  if (huge.huge_bytes() < room / 10 * 9 && room >= 32 * MiB)
    result_.warnings.push_back(
        fmt::format("only {} of {} asked for are in huge pages: see `millrace doctor`",
                    format_bytes(huge.huge_bytes()), format_bytes(room)));
  huge_.emplace(std::move(huge));
  small_.emplace(std::move(small));
  target_ = {.direct = direct_ ? &*direct_ : nullptr,
             .buffered = &*buffered_,
             .huge = huge_->bytes(),
             .small = small_->bytes()};
  return {};
}

// As the engine would read: with what the system does not refuse.
Status Measurement::choose_grid_way() {
  grid_way_.direct = direct_.has_value();
  for (int attempt = 0; attempt < 3; ++attempt) {
    ReadTally tally;
    const SliceRequest request = {.piece_bytes = pieces_.front(), .depth = 1, .ns_max = 1'000'000};
    auto refused = measure_slice(grid_way_, target_, request, tally);
    if (!refused) return named(refused.error());
    if (refused->empty()) break;
    if (grid_way_.registered) {
      grid_way_.registered = false;
      grid_way_.name = "io_uring, plain, huge pages";
    } else {
      grid_way_.kind = ReaderKind::threads;
      grid_way_.name = "threads, huge pages";
    }
  }
  result_.profile.grid_way = grid_way_.name;
  return {};
}

void Measurement::make_cells() {
  std::vector<std::uint32_t> depths = {1, 4, 8, 16, 64};
  if (options_.thorough) depths = {1, 2, 4, 8, 16, 32, 64};
  for (const std::uint64_t piece : pieces_)
    for (const std::uint32_t depth : depths) cells_.push_back({piece, depth, {}});
}

Status Measurement::measure_cell(Cell& cell, std::uint64_t ns) {
  const SliceRequest request = {
      .piece_bytes = cell.piece_bytes, .depth = cell.depth, .ns_max = ns, .first = turns_};
  auto refused = measure_slice(grid_way_, target_, request, cell.tally);
  if (!refused) return named(refused.error());
  if (!refused->empty()) return named({ErrorCode::io, *refused});
  // The next slice begins elsewhere in the file.
  turns_ += 1 + cell.tally.bytes / cell.piece_bytes;
  return {};
}

Status Measurement::measure_cells() {
  const std::uint64_t rounds = options_.thorough ? 4 : 2;
  const double seconds = std::max(0.1 * seconds_, seconds_ - seconds_used()) * grid_share;
  const double slice = seconds / static_cast<double>(rounds * cells_.size());
  double fastest = 0;
  const std::size_t all = rounds * cells_.size();
  for (std::size_t i = 0; i < all; ++i) {
    if (cancel_.load()) return Error{ErrorCode::cancelled, "interrupted"};
    // The first round goes up in size, so that what would take too long is known; the others are
    // shuffled.
    const std::size_t round = i / cells_.size();
    const std::size_t turn = i % cells_.size();
    Cell& cell = cells_[round == 0 ? turn : (turn * 11 + round * 7) % cells_.size()];
    const double queue_bytes = static_cast<double>(cell.piece_bytes) * cell.depth;
    if (round == 0)
      cell.skipped = fastest > 0 && queue_bytes > fastest * std::max(slice * 8, queue_seconds_max);
    if (cell.skipped) continue;
    progress_.show("reading", static_cast<double>(i) / static_cast<double>(all) * grid_share,
                   fmt::format("{} pieces, depth {}", format_bytes(cell.piece_bytes), cell.depth));
    MILLRACE_TRY(measure_cell(cell, static_cast<std::uint64_t>(slice * 1e9)));
    fastest = std::max(fastest, cell.tally.rate(1, 1).bytes_per_second);
  }
  DriveProfile& profile = result_.profile;
  for (const Cell& cell : cells_)
    if (cell.tally.bytes > 0) profile.grid.push_back(cell.tally.rate(cell.piece_bytes, cell.depth));
  if (profile.grid.empty()) return named({ErrorCode::io, "nothing could be read"});
  return {};
}

// The middle over all cells of half the range of their slices, within reason.
double Measurement::cell_noise() const {
  std::vector<double> ranges = {0};
  for (const Cell& cell : cells_) {
    if (cell.tally.rates.size() < 2) continue;
    const auto [low, high] = std::minmax_element(cell.tally.rates.begin(), cell.tally.rates.end());
    ranges.push_back((*high - *low) / *high / 2);
  }
  std::sort(ranges.begin(), ranges.end());
  return std::clamp(ranges[ranges.size() / 2], 0.03, 0.15);
}

Status Measurement::measure_ways() {
  DriveProfile& profile = result_.profile;
  profile.noise = cell_noise();
  const ReadRate& best = profile.grid[best_cell(profile.grid, profile.noise)];
  profile.piece_bytes = best.piece_bytes;
  profile.queue_depth = best.depth;
  constexpr std::size_t count = std::size(ways);
  const std::size_t rounds = options_.thorough ? 4 : 2;
  const double seconds = std::max(0.1 * seconds_, seconds_ - seconds_used());
  const double slice = seconds / static_cast<double>(rounds * count);
  for (const ReadWay& way : ways) profile.ways.push_back({way.name, way.direct, {}, {}});
  for (std::size_t w = 0; w < count; ++w) {
    const std::uint32_t depth = ways[w].mapped ? read_machine().cores : best.depth;
    way_cells_.push_back({best.piece_bytes, depth, {}});
  }
  for (std::size_t i = 0; i < rounds * count; ++i) {
    const std::size_t w = i % count;
    if (cancel_.load()) return Error{ErrorCode::cancelled, "interrupted"};
    if (!profile.ways[w].refused.empty()) continue;
    progress_.show("comparing readers",
                   grid_share + (1 - grid_share) * static_cast<double>(i) /
                                    static_cast<double>(rounds * count),
                   ways[w].name);
    Cell& cell = way_cells_[w];
    const SliceRequest request = {.piece_bytes = cell.piece_bytes,
                                  .depth = cell.depth,
                                  .ns_max = static_cast<std::uint64_t>(slice * 1e9),
                                  .first = turns_};
    auto refused = measure_slice(ways[w], target_, request, cell.tally);
    if (!refused) return named(refused.error());
    profile.ways[w].refused = *refused;
    turns_ += 1 + cell.tally.bytes / cell.piece_bytes;
  }
  for (std::size_t w = 0; w < count; ++w)
    if (profile.ways[w].refused.empty())
      profile.ways[w].rate =
          way_cells_[w].tally.rate(way_cells_[w].piece_bytes, way_cells_[w].depth);
  progress_.clear();
  return {};
}

void Measurement::fill_profile() {
  DriveProfile& profile = result_.profile;
  profile.measured_at = static_cast<std::int64_t>(std::time(nullptr));
  profile.thorough = options_.thorough;
  std::vector<double> rates;
  for (const Cell& cell : cells_)
    if (cell.piece_bytes == profile.piece_bytes && cell.depth == profile.queue_depth)
      rates.insert(rates.end(), cell.tally.rates.begin(), cell.tally.rates.end());
  for (std::size_t w = 0; w < std::size(ways); ++w)  // the same cell, a little later
    if (ways[w].name == std::string_view(grid_way_.name))
      rates.insert(rates.end(), way_cells_[w].tally.rates.begin(), way_cells_[w].tally.rates.end());
  std::sort(rates.begin(), rates.end());
  profile.slowest_bytes_per_second = rates.front();
  profile.fastest_bytes_per_second = rates.back();
  profile.bytes_per_second = (rates[(rates.size() - 1) / 2] + rates[rates.size() / 2]) / 2;
  double device_bytes = 0, bytes = 0;
  for (const Cell& cell : cells_) {
    device_bytes += static_cast<double>(cell.tally.device_bytes);
    bytes += static_cast<double>(cell.tally.bytes);
  }
  const bool counted = kernel_read_bytes() > 0;
  profile.page_cache = in_memory_ || (counted ? device_bytes < 0.5 * bytes : !profile.direct);
}

void Measurement::add_warnings() {
  const DriveProfile& profile = result_.profile;
  constexpr std::uint64_t small_file = 256 * MiB;
  if (profile.page_cache)
    result_.warnings.push_back(
        in_memory_ ? "the folder or file lies in memory (" + profile.file_system +
                         "), on no drive: this is the speed of memory, and the profile is not kept"
        : profile.direct
            ? "the kernel counts less than half of these bytes as read from a device: this is "
              "memory or a network, not a local drive; the profile is not kept"
            : "this is the speed of the page cache (memory), not of a drive, and the profile is "
              "not "
              "kept: name a file or folder on a file system that takes direct reads");
  if (scratch_ && profile.file_bytes < options_.scratch_bytes)
    result_.warnings.push_back(
        fmt::format("the scratch file has {} instead of {}: it takes at most half of the free "
                    "space and a third "
                    "of the time (--seconds); a drive may answer small files from its own cache",
                    format_bytes(profile.file_bytes), format_bytes(options_.scratch_bytes)));
  else if (profile.file_bytes < small_file)
    result_.warnings.push_back(fmt::format(
        "the file has only {}: the drive may answer from its own cache; a folder instead of a "
        "file gives a scratch file of {}",
        format_bytes(profile.file_bytes), format_bytes(options_.scratch_bytes)));
  if (profile.slowest_bytes_per_second < 0.7 * profile.fastest_bytes_per_second)
    result_.warnings.push_back(fmt::format(
        "the drive varied from {:.2f} to {:.2f} GB/s while it was measured: other programs, or a "
        "drive that is shared",
        profile.slowest_bytes_per_second / 1e9, profile.fastest_bytes_per_second / 1e9));
}

}  // namespace

Result<FloorResult> measure_floor(const FloorOptions& options, ProgressLine& progress,
                                  const std::atomic<bool>& cancel) {
  return Measurement(options, progress, cancel).run();
}

}  // namespace millrace
