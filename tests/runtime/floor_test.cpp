// The read floor, measured on small real files: every cell and every way, and what is no drive.
#include "runtime/floor/floor.h"
#include "runtime/floor/drive_now.h"

#include <sys/statvfs.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>

#include "runtime/base/units.h"
#include "runtime/floor/scratch_file.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using millrace::testing::TempFolder;

namespace {

Result<FloorResult> measure(const std::string& path, double seconds, bool thorough = false) {
  static const std::atomic<bool> go_on = false;
  ProgressLine silent(false);
  FloorOptions options;
  options.path = path;
  options.seconds = seconds;
  options.thorough = thorough;
  options.scratch_bytes = 24 * MiB;
  return measure_floor(options, silent, go_on);
}

std::size_t entries(const TempFolder& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
    count += entry.exists() ? 1 : 0;
  return count;
}

void check_rate(const ReadRate& rate) {
  CHECK(rate.bytes_per_second > 0);
  CHECK(rate.p50_us > 0);
  CHECK(rate.p99_us >= rate.p50_us);
  CHECK(rate.cpu_ms_per_gb() >= 0);
}

}  // namespace

TEST_CASE("In a folder a scratch file is measured in all cells and ways, and nothing is left") {
  const TempFolder folder;
  const auto result = measure(folder.path(""), 1);
  REQUIRE(result);
  const DriveProfile& profile = result->profile;
  CHECK(entries(folder) == 0);
  CHECK(profile.file_bytes == 24 * MiB);
  CHECK(profile.grid.size() <= 25);
  std::set<std::pair<std::uint64_t, std::uint32_t>> cells;
  for (const ReadRate& rate : profile.grid) {
    check_rate(rate);
    cells.insert({rate.piece_bytes, rate.depth});
  }
  CHECK(cells.size() == profile.grid.size());
  CHECK(cells.count({64 * KiB, 1}) == 1);
  CHECK(cells.count({profile.piece_bytes, profile.queue_depth}) == 1);
  CHECK(profile.ways.size() == 10);
  std::size_t measured = 0;
  for (const WayRate& way : profile.ways) {
    CAPTURE(way.name, way.refused);
    if (!way.refused.empty()) continue;
    check_rate(way.rate);
    ++measured;
  }
  CHECK(measured >= 3);  // threads, buffered and mmap are never refused
  CHECK(profile.slowest_bytes_per_second <= profile.bytes_per_second);
  CHECK(profile.bytes_per_second <= profile.fastest_bytes_per_second);
  // What is printed, drawn and kept can be made of it.
  const std::string table = floor_table(*result);
  for (const WayRate& way : profile.ways) CHECK(table.find(way.name) != std::string::npos);
  CHECK(floor_svg(profile).find("</svg>") != std::string::npos);
  const auto again = parse_profile(profile_json(profile).dump());
  REQUIRE(again);
  CHECK(profile_json(*again).dump() == profile_json(profile).dump());
}

TEST_CASE("A file of any size is measured in pieces that it holds") {
  struct Size {
    std::uint64_t bytes;
    std::uint64_t largest_piece;
  };
  const auto size = GENERATE(Size{1, 64 * KiB - 1}, Size{5000, 64 * KiB - 1},
                             Size{64 * KiB + 1, 128 * KiB}, Size{1 * MiB + 777, 1 * MiB});
  CAPTURE(size.bytes);
  const TempFolder folder;
  const std::string path = folder.write("f", std::string(size.bytes, 'x'));
  const auto result = measure(path, 0.2);
  REQUIRE(result);
  CHECK(result->profile.file_bytes == size.bytes);
  for (const ReadRate& rate : result->profile.grid) {
    check_rate(rate);
    CHECK(rate.piece_bytes <= size.largest_piece);
  }
  CHECK(entries(folder) == 1);
}

TEST_CASE("The full grid has eight piece sizes and seven depths") {
  const TempFolder folder;
  const auto result = measure(folder.path(""), 1.5, true);
  REQUIRE(result);
  std::set<std::uint64_t> pieces;
  for (const ReadRate& rate : result->profile.grid) pieces.insert(rate.piece_bytes);
  CHECK(pieces.size() == 8);
  CHECK(*pieces.rbegin() == 8 * MiB);
}

TEST_CASE("Memory behind a path is said to be no drive") {
  struct statvfs about = {};
  if (statvfs("/dev/shm", &about) != 0 || about.f_bavail * about.f_frsize < 64 * MiB) return;
  const auto result = measure("/dev/shm", 0.5);
  REQUIRE(result);
  CHECK(result->profile.page_cache);
  bool said = false;
  for (const std::string& warning : result->warnings)
    said = said || warning.find("memory") != std::string::npos;
  CHECK(said);
}

TEST_CASE("A drive that is asked right now answers by direct reads, or not at all") {
  const TempFolder folder;
  const std::string path = folder.write("f", std::string(4 * MiB, 'x'));
  const auto buffered = File::open(path, DirectMode::off);
  REQUIRE(buffered);
  CHECK(drive_now(*buffered, 256 * KiB, 4).bytes == 0);
  const auto direct = File::open(path, DirectMode::automatic);
  REQUIRE(direct);
  if (!direct->direct()) return;  // the folder lies where there are no direct reads
  CHECK(drive_now(*direct, 8 * MiB, 4).bytes == 0);  // no piece fits into the file
  const FloorFigure now = drive_now(*direct, 256 * KiB, 4);
  if (now.samples == 0) return;  // no io_uring with registered buffers here
  CHECK(now.bytes > 0);
  CHECK(now.bytes_per_second() > 0);
}

TEST_CASE("What cannot be measured is refused with the path and the reason") {
  const TempFolder folder;
  const auto absent = measure(folder.path("absent"), 1);
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == ErrorCode::io);
  CHECK(absent.error().what.find("absent: no such file") != std::string::npos);
  const auto empty = measure(folder.write("empty", ""), 1);
  REQUIRE_FALSE(empty);
  CHECK(empty.error().code == ErrorCode::usage);
  CHECK(empty.error().what.find("is empty") != std::string::npos);
  CHECK(measure("/dev/null", 1).error().what.find("not a regular file") != std::string::npos);
  CHECK(measure(folder.path(""), 1e9).error().code == ErrorCode::usage);
  CHECK(measure(folder.path(""), -1).error().code == ErrorCode::usage);
}

TEST_CASE("A measurement that is cancelled says so and leaves nothing") {
  const TempFolder folder;
  const std::atomic<bool> stop = true;
  ProgressLine silent(false);
  FloorOptions options;
  options.path = folder.path("");
  const auto result = measure_floor(options, silent, stop);
  REQUIRE_FALSE(result);
  CHECK(result.error().code == ErrorCode::cancelled);
  CHECK(entries(folder) == 0);
}

TEST_CASE("A scratch file that the space does not allow is refused with the numbers") {
  const TempFolder folder;
  const std::atomic<bool> go_on = false;
  const auto create = [&](const std::string& where, std::uint64_t bytes) {
    return ScratchFile::create(where, bytes, 1, go_on, [](double) {});
  };
  const auto made = create("/proc", ScratchFile::smallest_bytes);  // says that it has no room
  REQUIRE_FALSE(made);
  CHECK(made.error().code == ErrorCode::io);
  CHECK(made.error().what.find("no space") != std::string::npos);
  const auto small = create(folder.path(""), ScratchFile::smallest_bytes / 2);
  REQUIRE_FALSE(small);
  CHECK(small.error().code == ErrorCode::usage);
  CHECK(small.error().what.find("--size 8.00 MiB: ") != std::string::npos);
}
