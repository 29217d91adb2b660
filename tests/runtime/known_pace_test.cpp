// The pace that is learned from runs.
#include "runtime/estimate/known_pace.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.h"

namespace millrace {
namespace {

using testing::TempFolder;

TEST_CASE("A pace is half of what was known, half of what the run took, within bounds") {
  const TempFolder folder;
  const std::string place = folder.path("kept");
  const PaceKey key{place, "0123", "scalar", 2};
  CHECK_FALSE(load_pace(key));
  REQUIRE(save_pace(key, {0.08}));
  REQUIRE(load_pace(key));
  CHECK(load_pace(key)->compute_seconds == Approx(0.08));
  REQUIRE(save_pace(key, {0.04}));
  CHECK(load_pace(key)->compute_seconds == Approx(0.06));
  CHECK(load_pace(key)->runs == 2);
  REQUIRE(save_pace(key, {4000}));
  CHECK(load_pace(key)->compute_seconds == Approx(2000.03));
  CHECK_FALSE(load_pace({place, "0123", "scalar", 1}));
  CHECK_FALSE(load_pace({place, "0123", "avx2", 2}));
  CHECK_FALSE(load_pace({place, "4567", "scalar", 2}));
}

TEST_CASE("A pace that is damaged is none, and the next run mends it; no folder keeps nothing") {
  const TempFolder folder;
  const std::string place = folder.path("kept");
  const PaceKey key{place, "0123", "scalar", 2};
  REQUIRE(save_pace(key, {3}));
  const std::string path = std::filesystem::directory_iterator(place)->path();
  for (const char* const text :
       {"", "{}", "[1]", "{\"compute_seconds\":0,\"runs\":1}", "{\"compute_seconds\":1.5}",
        "{\"compute_seconds\":1e300,\"runs\":1}", "{\"compute_seconds\":1.5,\"runs\":-1}",
        "{\"compute_seconds\":1.5,\"runs\":1,\"drive\":\"\","
        "\"drive_bytes_per_second\":-1}"}) {
    CAPTURE(text);
    std::ofstream(path) << text;
    CHECK_FALSE(load_pace(key));
  }
  REQUIRE(save_pace(key, {3}));
  CHECK(load_pace(key)->compute_seconds == Approx(3));
  std::filesystem::remove(path);  // a pipe is not waited for, and gives way
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(load_pace(key));
  REQUIRE(save_pace(key, {3}));
  CHECK(load_pace(key)->compute_seconds == Approx(3));
  const PaceKey nowhere{"", "0123", "scalar", 2};
  CHECK(save_pace(nowhere, {3}));
  CHECK_FALSE(load_pace(nowhere));
}

TEST_CASE("A pace divides the speeds of the kernels, not that of the memory, within bounds") {
  const ComputeSpeed speed{.memory_bytes_per_second = 30e9,
                           .expert_bytes_per_second = 20e9,
                           .trunk_bytes_per_second = 24e9,
                           .threads = 2};
  const TokenTimes times{.trunk = 0.03, .experts = 0.01};
  const ComputeSpeed slower = paced(speed, times, KnownPace{.compute_seconds = 0.08, .runs = 1});
  CHECK(slower.memory_bytes_per_second == Approx(30e9));
  CHECK(slower.expert_bytes_per_second == Approx(10e9));
  CHECK(slower.trunk_bytes_per_second == Approx(12e9));
  CHECK(paced(speed, times, {}).trunk_bytes_per_second == Approx(24e9));
  const ComputeSpeed absurd = paced(speed, times, KnownPace{.compute_seconds = 80, .runs = 1});
  CHECK(absurd.trunk_bytes_per_second == Approx(24e9 / pace_factor_max));
}

TEST_CASE("What a drive gave in runs is what is expected of that drive, and of no other") {
  const TempFolder folder;
  const std::string place = folder.path("kept");
  const PaceKey key{place, "0123", "scalar", 2, "direct a"};
  REQUIRE(save_pace(key, {0.08, 2e9}));
  REQUIRE(save_pace(key, {0.08, 1e9}));
  CHECK(load_pace(key)->drive_bytes_per_second == Approx(1.5e9));
  REQUIRE(save_pace(key, {0.08}));  // nothing was measured: what was known stays
  CHECK(load_pace(key)->drive_bytes_per_second == Approx(1.5e9));
  const PaceKey other{place, "0123", "scalar", 2, "direct b"};
  REQUIRE(load_pace(other));
  CHECK(load_pace(other)->drive_bytes_per_second == 0);
  const DriveRange measured{1.9e9, 2e9, 2.1e9, true, 1e-4};
  const DriveRange expected = paced(measured, load_pace(key));
  CHECK(expected.middle == Approx(1.5e9));
  CHECK(expected.low < 1.5e9);
  CHECK(expected.high == measured.high);
  CHECK(expected.latency_seconds == measured.latency_seconds);
  CHECK(paced(measured, load_pace(other)).middle == measured.middle);
  CHECK(paced(measured, std::nullopt).low == measured.low);
}

TEST_CASE("What a drive gave when asked is kept of runs that also tell what it gave in them") {
  const TempFolder folder;
  const std::string place = folder.path("kept");
  const PaceKey key{place, "0123", "scalar", 2, "direct a"};
  REQUIRE(save_pace(key, {0.08, 0, 9e9}));
  CHECK(load_pace(key)->asked_bytes_per_second == 0);
  REQUIRE(save_pace(key, {0.08, 1e9, 2e9}));
  CHECK(load_pace(key)->asked_bytes_per_second == Approx(2e9));
  REQUIRE(save_pace(key, {0.08, 1e9, 4e9}));
  CHECK(load_pace(key)->asked_bytes_per_second == Approx(3e9));
  REQUIRE(save_pace(key, {0.08, 1e9}));
  CHECK(load_pace(key)->asked_bytes_per_second == Approx(3e9));
}

TEST_CASE("A drive that was asked a moment ago is judged by that moment too") {
  const DriveRange profiled{1.9e9, 2e9, 2.1e9, true, 1e-4};
  const KnownPace pace{.compute_seconds = 0.08, .runs = 3, .drive_bytes_per_second = 1e9};
  CHECK(paced(profiled, pace, 1.4e9).middle == 1.4e9);  // the middle one of three
  CHECK(paced(profiled, pace, 9e9).middle == 2e9);
  CHECK(paced(profiled, pace, 1e8).middle == 1e9);
  CHECK(paced(profiled, std::nullopt, 0.5e9).middle == Approx(1e9));
  KnownPace both = pace;  // runs got half of what the drive gave when asked: so it will be again
  both.asked_bytes_per_second = 2e9;
  CHECK(paced(profiled, both, 2e9).middle == Approx(1e9));
  CHECK(paced(profiled, both, 2.2e9).middle == Approx(1e9));
  CHECK(paced({2.9e9, 3e9, 3.1e9, true, 1e-4}, both, 2.6e9).middle == Approx(1.3e9));
  CHECK(paced(profiled, both).middle == Approx(1e9));
  const DriveRange assumed{0.4e9, 2.5e9, 7e9, false, 2e-4};
  CHECK(paced(assumed, pace, 4e9).middle == Approx(2e9));
  CHECK(paced(assumed, std::nullopt, 3e9).middle == Approx(3e9));
  CHECK(paced(assumed, std::nullopt, 3e9).measured);
  const DriveRange far = paced(profiled, std::nullopt, 20e9);
  CHECK(far.low <= far.middle);
  CHECK(far.high >= far.middle);
}

}  // namespace
}  // namespace millrace
