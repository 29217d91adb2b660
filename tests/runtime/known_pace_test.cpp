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
  const TokenTimes times{.trunk = 0.03, .experts = 0.01};
  CHECK_FALSE(load_pace(key));
  REQUIRE(save_pace(key, times, 0.08));
  REQUIRE(load_pace(key));
  CHECK(load_pace(key)->factor == Approx(2));
  REQUIRE(save_pace(key, times, 0.04));
  CHECK(load_pace(key)->factor == Approx(1.5));
  CHECK(load_pace(key)->runs == 2);
  REQUIRE(save_pace(key, times, 4000));
  CHECK(load_pace(key)->factor == Approx((1.5 + pace_factor_max) / 2));
  CHECK_FALSE(load_pace({place, "0123", "scalar", 1}));
  CHECK_FALSE(load_pace({place, "0123", "avx2", 2}));
  CHECK_FALSE(load_pace({place, "4567", "scalar", 2}));
}

TEST_CASE("A pace that is damaged is none, and the next run mends it; no folder keeps nothing") {
  const TempFolder folder;
  const std::string place = folder.path("kept");
  const PaceKey key{place, "0123", "scalar", 2};
  REQUIRE(save_pace(key, {.trunk = 1, .experts = 1}, 3));
  const std::string path = std::filesystem::directory_iterator(place)->path();
  for (const char* const text : {"", "{}", "[1]", "{\"factor\":0,\"runs\":1}", "{\"factor\":1.5}",
                                 "{\"factor\":1e300,\"runs\":1}", "{\"factor\":1.5,\"runs\":-1}"}) {
    CAPTURE(text);
    std::ofstream(path) << text;
    CHECK_FALSE(load_pace(key));
  }
  REQUIRE(save_pace(key, {.trunk = 1, .experts = 1}, 3));
  CHECK(load_pace(key)->factor == Approx(1.5));
  std::filesystem::remove(path);  // a pipe is not waited for, and gives way
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(load_pace(key));
  REQUIRE(save_pace(key, {.trunk = 1, .experts = 1}, 3));
  CHECK(load_pace(key)->factor == Approx(1.5));
  const PaceKey nowhere{"", "0123", "scalar", 2};
  CHECK(save_pace(nowhere, {.trunk = 1, .experts = 1}, 3));
  CHECK_FALSE(load_pace(nowhere));
}

TEST_CASE("A pace divides the speeds of the kernels, not that of the memory") {
  const ComputeSpeed speed{.memory_bytes_per_second = 30e9,
                           .expert_bytes_per_second = 20e9,
                           .trunk_bytes_per_second = 24e9,
                           .threads = 2};
  const ComputeSpeed slower = paced(speed, KnownPace{.factor = 2, .runs = 1});
  CHECK(slower.memory_bytes_per_second == Approx(30e9));
  CHECK(slower.expert_bytes_per_second == Approx(10e9));
  CHECK(slower.trunk_bytes_per_second == Approx(12e9));
  CHECK(paced(speed, {}).trunk_bytes_per_second == Approx(24e9));
}

}  // namespace
}  // namespace millrace
