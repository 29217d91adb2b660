// Profiles on disk, and which drive they are of. A profile that is damaged or foreign is as none.
#include "io/drive_profile.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/write_file.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using millrace::testing::TempFolder;

namespace {

Drive some_drive(const std::string& key = "serial-7 Fast 1000") {
  Drive drive;
  drive.key = key;
  drive.name = "nvme0n1";
  return drive;
}

ReadRate cell(std::uint64_t piece_bytes, std::uint32_t depth, double bytes_per_second) {
  ReadRate rate;
  rate.piece_bytes = piece_bytes;
  rate.depth = depth;
  rate.bytes_per_second = bytes_per_second;
  rate.p50_us = 12.5;
  rate.p99_us = 40;
  return rate;
}

DriveProfile some_profile() {
  DriveProfile profile;
  profile.drive_key = some_drive().key;
  profile.drive_name = "nvme0n1";
  profile.measured_at = 1'700'000'000;
  profile.direct = true;
  profile.file_bytes = 1 * GiB;
  profile.grid_way = "io_uring";
  profile.grid = {cell(64 * KiB, 1, 1e9), cell(1 * MiB, 8, 3e9)};
  profile.ways = {{"io_uring", true, "", cell(1 * MiB, 8, 3e9)},
                  {"IOPOLL", true, "refused here", {}}};
  profile.piece_bytes = 1 * MiB;
  profile.queue_depth = 8;
  profile.bytes_per_second = 3e9;
  profile.slowest_bytes_per_second = 2.5e9;
  profile.fastest_bytes_per_second = 3.5e9;
  return profile;
}

// The log is quiet meanwhile: these tests make it warn.
class QuietLog {
 public:
  QuietLog() : before_(log_level()) { set_log_level(LogLevel::off); }
  ~QuietLog() { set_log_level(before_); }

 private:
  LogLevel before_;
};

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// /proc and /sys as the test writes them.
class FakeRoot {
 public:
  FakeRoot& file(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = folder_.path(path);
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole, std::ios::binary) << text;
    return *this;
  }
  FakeRoot& link(const std::string& path, const std::string& target) {
    const std::filesystem::path whole = folder_.path(path);
    std::filesystem::create_directories(whole.parent_path());
    std::filesystem::create_symlink(folder_.path(target), whole);
    return *this;
  }
  std::string root() const {
    const std::string path = folder_.path("");
    return path.substr(0, path.size() - 1);
  }

 private:
  TempFolder folder_;
};

}  // namespace

TEST_CASE("A profile that was saved is loaded for its drive, and for no other") {
  const TempFolder folder;
  const std::string place = folder.path("deep/cache");
  REQUIRE(save_profile(place, some_profile()));
  const auto loaded = load_profile(place, some_drive());
  REQUIRE(loaded);
  CHECK(profile_json(*loaded).dump() == profile_json(some_profile()).dump());
  CHECK_FALSE(load_profile(place, some_drive("another")));
  CHECK_FALSE(load_profile("", some_drive()));
}

TEST_CASE("A profile under the name of another drive is ignored") {
  const QuietLog quiet;
  const TempFolder folder;
  REQUIRE(save_profile(folder.path("c"), some_profile()));
  const Drive other = some_drive("another");
  std::filesystem::copy(profile_path(folder.path("c"), some_drive().key),
                        profile_path(folder.path("c"), other.key));
  CHECK_FALSE(load_profile(folder.path("c"), other));
}

TEST_CASE("A damaged profile is ignored, whatever is wrong with it") {
  const QuietLog quiet;
  const TempFolder folder;
  REQUIRE(save_profile(folder.path("c"), some_profile()));
  const std::string path = profile_path(folder.path("c"), some_drive().key);
  const std::string sound = read_all(path);
  REQUIRE(load_profile(folder.path("c"), some_drive()));
  for (std::size_t length = 0; length + 2 < sound.size(); length += 7) {
    CAPTURE(length);
    std::ofstream(path, std::ios::binary) << sound.substr(0, length);
    REQUIRE_FALSE(load_profile(folder.path("c"), some_drive()));
  }
  std::ofstream(path, std::ios::binary) << std::string(1 * MiB, ' ');
  CHECK_FALSE(load_profile(folder.path("c"), some_drive()));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  CHECK_FALSE(load_profile(folder.path("c"), some_drive()));
  std::filesystem::remove(path);  // a pipe is not waited for, and gives way
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(load_profile(folder.path("c"), some_drive()));
  REQUIRE(save_profile(folder.path("c"), some_profile()));
  CHECK(load_profile(folder.path("c"), some_drive()));
}

TEST_CASE("Numbers of a profile are held against their bounds, its version against ours") {
  struct Edit {
    const char* key;
    Json value;
  };
  const Edit edit = GENERATE(
      Edit{"version", 2}, Edit{"version", "1"}, Edit{"piece_bytes", 0},
      Edit{"piece_bytes", std::uint64_t{1} << 40}, Edit{"piece_bytes", -4096},
      Edit{"piece_bytes", 1'000'000}, Edit{"piece_bytes", 128 * MiB}, Edit{"measured_at", 0},
      Edit{"measured_at", -1}, Edit{"measured_at", "2026-11-30"}, Edit{"queue_depth", 0},
      Edit{"queue_depth", 100000}, Edit{"bytes_per_second", -1.0}, Edit{"bytes_per_second", 1e30},
      Edit{"bytes_per_second", nullptr}, Edit{"drive", 7}, Edit{"bytes_per_second", 0.9e6},
      Edit{"bytes_per_second", 2.1e11}, Edit{"slowest_bytes_per_second", 3.1e9},
      Edit{"fastest_bytes_per_second", 2.9e9}, Edit{"slowest_bytes_per_second", 1.0},
      Edit{"fastest_bytes_per_second", 1e12}, Edit{"grid", "none"}, Edit{"ways", nullptr});
  CAPTURE(edit.key, edit.value.dump());
  Json json = profile_json(some_profile());
  REQUIRE(parse_profile(json.dump()));
  json.set(edit.key, edit.value);
  const auto parsed = parse_profile(json.dump());
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == ErrorCode::format);
  if (std::string(edit.key) != "version")
    CHECK(parsed.error().what.find("'" + std::string(edit.key) + "'") != std::string::npos);
}

TEST_CASE("Cells and ways of a profile are held against the bounds of drives") {
  struct Edit {
    const char* key;
    void (*change)(ReadRate&);
  };
  const Edit edit =
      GENERATE(Edit{"depth", [](ReadRate& rate) { rate.depth = 257; }},
               Edit{"bytes_per_second", [](ReadRate& r) { r.bytes_per_second = 9e5; }},
               Edit{"bytes_per_second", [](ReadRate& r) { r.bytes_per_second = 3e11; }},
               Edit{"p50_us", [](ReadRate& rate) { rate.p50_us = 61e6; }},
               Edit{"p99_us", [](ReadRate& rate) { rate.p99_us = 61e6; }},
               Edit{"p99_us", [](ReadRate& rate) { rate.p99_us = 12; }});
  const bool of_way = GENERATE(false, true);
  CAPTURE(edit.key, of_way);
  DriveProfile profile = some_profile();
  edit.change(of_way ? profile.ways[0].rate : profile.grid[1]);
  const auto parsed = parse_profile(profile_json(profile).dump());
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().what.find("'" + std::string(edit.key) + "'") != std::string::npos);
}

TEST_CASE("A profile that would not be loaded is not saved, and the one before it stays") {
  const TempFolder folder;
  REQUIRE(save_profile(folder.path("c"), some_profile()));
  DriveProfile odd = some_profile();
  odd.grid[0].bytes_per_second = 1;
  const auto saved = save_profile(folder.path("c"), odd);
  REQUIRE_FALSE(saved);
  CHECK(saved.error().what.find("'bytes_per_second'") != std::string::npos);
  CHECK(load_profile(folder.path("c"), some_drive()));
}

TEST_CASE("A profile of the page cache, or of a day to come, is none") {
  const QuietLog quiet;
  const TempFolder folder;
  DriveProfile profile = some_profile();
  profile.measured_at = static_cast<std::int64_t>(std::time(nullptr));
  REQUIRE(save_profile(folder.path("c"), profile));
  CHECK(load_profile(folder.path("c"), some_drive()));
  profile.measured_at += 30 * 86'400;
  REQUIRE(save_profile(folder.path("c"), profile));
  CHECK_FALSE(load_profile(folder.path("c"), some_drive()));
  profile = some_profile();
  profile.page_cache = true;
  REQUIRE(save_profile(folder.path("c"), profile));
  CHECK_FALSE(load_profile(folder.path("c"), some_drive()));
}

TEST_CASE("The best cell has the fewest bytes in flight among those close to the fastest") {
  const auto best = [](const std::vector<ReadRate>& grid, std::uint64_t read_bytes = UINT64_MAX) {
    return best_cell(grid, 0.03, read_bytes);
  };
  CHECK(best({cell(1 * MiB, 1, 1e9), cell(1 * MiB, 8, 2.95e9), cell(1 * MiB, 16, 3e9)}) == 1);
  CHECK(best({cell(1 * MiB, 8, 2.8e9), cell(8 * MiB, 16, 3e9)}) == 1);
  CHECK(best_cell({cell(1 * MiB, 8, 2.8e9), cell(8 * MiB, 16, 3e9)}, 0.1) == 0);
  // One large read in flight is no better than four small ones.
  CHECK(best({cell(1 * MiB, 8, 3e9), cell(8 * MiB, 1, 3e9)}) == 0);
  // Small pieces cost CPU: only where nothing larger is as fast.
  CHECK(best({cell(64 * KiB, 16, 3e9), cell(2 * MiB, 4, 2.95e9)}) == 1);
  CHECK(best({cell(64 * KiB, 16, 3e9), cell(2 * MiB, 4, 2e9)}) == 0);
  // A read goes in one piece if the size above it is as fast; sizes beyond that say nothing of it.
  CHECK(best({cell(256 * KiB, 8, 1.9e9), cell(1 * MiB, 8, 2e9)}, 816 * KiB) == 1);
  CHECK(best({cell(1 * MiB, 16, 2e9), cell(8 * MiB, 4, 3e9)}, 3 * MiB) == 0);
  CHECK(best({cell(1 * MiB, 16, 2e9), cell(8 * MiB, 4, 3e9)}, 100 * KiB) == 0);
}

TEST_CASE("The rate at a piece size and depth is that of the nearest cell") {
  const DriveProfile profile = some_profile();
  CHECK(profile_rate(profile, 1 * MiB, 8) == 3e9);
  CHECK(profile_rate(profile, 64 * KiB, 2) == 1e9);
  CHECK(profile_rate(profile, 2 * MiB, 16) == 3e9);
}

TEST_CASE("A drive is known by its identifier, a partition by its drive's") {
  FakeRoot fake;
  fake.file("sys/devices/pci/nvme0n1/wwid", "eui.0011\n")
      .file("sys/devices/pci/nvme0n1/device/model", "Fast NVMe   \n")
      .file("sys/devices/pci/nvme0n1/size", "2000\n")
      .file("sys/devices/pci/nvme0n1/nvme0n1p2/partition", "2\n")
      .link("sys/dev/block/259:0", "sys/devices/pci/nvme0n1")
      .link("sys/dev/block/259:2", "sys/devices/pci/nvme0n1/nvme0n1p2")
      .file("proc/self/mountinfo",
            "30 1 259:2 / /data rw,relatime shared:5 - ext4 /dev/nvme0n1p2 rw\n");
  const Drive drive = describe_drive(makedev(259, 2), fake.root());
  CHECK(drive.key == "eui.0011 Fast NVMe 1024000");
  CHECK(drive.key == describe_drive(makedev(259, 0), fake.root()).key);
  CHECK(drive.name == "nvme0n1");
  CHECK(drive.model == "Fast NVMe");
  CHECK(drive.file_system == "ext4");
  CHECK(drive.size_bytes == 1024000);
  CHECK(drive.block_device);
  CHECK_FALSE(drive.virtual_drive);
}

TEST_CASE("What has no drive behind it is known by its file system and source") {
  FakeRoot fake;
  fake.file("proc/self/mountinfo",
            "31 1 0:44 / /mnt rw - nfs4 server:/models rw\n"
            "32 1 0:45 / /shm rw shared:9 - tmpfs tmpfs rw\n");
  const Drive remote = describe_drive(makedev(0, 44), fake.root());
  CHECK(remote.key == "nfs4 server:/models");
  CHECK_FALSE(remote.block_device);
  CHECK_FALSE(remote.memory_file_system);
  CHECK(describe_drive(makedev(0, 45), fake.root()).memory_file_system);
  CHECK_FALSE(describe_drive(makedev(0, 46), fake.root()).key.empty());
}

TEST_CASE("A path that does not exist has no drive") {
  const TempFolder folder;
  const auto drive = find_drive(folder.path("absent"));
  REQUIRE_FALSE(drive);
  CHECK(drive.error().code == ErrorCode::io);
  CHECK(drive.error().what.find("absent") != std::string::npos);
  CHECK(find_drive(folder.path("")));
}

TEST_CASE("A file is written whole or not at all, and nothing stays beside it") {
  const TempFolder folder;
  const std::string path = folder.write("f", "old");
  REQUIRE(write_file_atomically(path, "new text"));
  CHECK(read_all(path) == "new text");
  const auto failed = write_file_atomically(folder.path("absent/f"), "x");
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == ErrorCode::io);
  REQUIRE(write_file_atomically("/dev/null", "x"));
  std::filesystem::create_directory(folder.path("d"));
  CHECK_FALSE(write_file_atomically(folder.path("d"), "x"));
  std::filesystem::create_symlink("f", folder.path("link"));
  REQUIRE(write_file_atomically(folder.path("link"), "through the link"));
  CHECK(std::filesystem::is_symlink(folder.path("link")));
  CHECK(read_all(path) == "through the link");
  std::size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
    entries += entry.exists() ? 1 : 0;
  CHECK(entries == 3);
}
