// Predictions: their directions, their bounds, and headers without their weights.
#include "runtime/estimate/estimate.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "io/drive_profile.h"
#include "io/file.h"
#include "kernels/dispatch.h"
#include "runtime/base/units.h"
#include "runtime/estimate/hit_curve.h"
#include "runtime/read_joins.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using millrace::testing::TempFolder;

namespace {

Estimate estimate(const std::string& model, std::vector<std::uint64_t> ram = {}) {
  EstimateOptions options;
  options.model = model;
  options.type = "mxfp4";
  options.ram_bytes = std::move(ram);
  options.config.threads = 1;
  auto made = estimate_model(options);
  if (!made) FAIL(made.error().what);
  return *std::move(made);
}

std::string small_model() {
  return MILLRACE_SOURCE_ROOT "/tests/oracles/models/qwen3moe-mxfp4/model.gguf";
}

}  // namespace

TEST_CASE("Hits grow with the cache, from none to all, and the range is in order") {
  for (const std::uint32_t experts : {8u, 32u, 128u, 512u}) {
    HitRange before;
    for (int percent = 0; percent <= 100; percent += 5) {
      const HitRange hits = expected_hits(percent / 100.0, 4, experts);
      CAPTURE(experts, percent, hits.low, hits.middle, hits.high);
      CHECK(0 <= hits.low);
      CHECK(hits.low <= hits.middle);
      CHECK(hits.middle <= hits.high);
      CHECK(hits.high <= 1);
      CHECK(hits.low >= before.low);
      CHECK(hits.middle >= before.middle);
      CHECK(hits.high >= before.high);
      before = hits;
    }
    CHECK(before.low == 1);
    CHECK(expected_hits(0, 4, experts).high == 0);
  }
  CHECK(expected_hits(0, 0, 0).low == 1);  // a dense model misses nothing
}

TEST_CASE("Below one token's experts little is hit") {
  CHECK(expected_hits(0.02, 8, 128).low == 0);
  CHECK(expected_hits(0.02, 8, 128).middle < 0.1);
}

TEST_CASE("The curve holds what was recorded in its range") {
  struct Recorded {
    double share;
    double hits;
    std::uint32_t used;
  };
  // LRU over the recordings of the README's table.
  const auto recorded =
      GENERATE(Recorded{0.1, 0.514, 6}, Recorded{0.25, 0.851, 6}, Recorded{0.5, 0.992, 6},
               Recorded{0.1, 0.660, 2}, Recorded{0.25, 0.863, 2}, Recorded{0.4, 0.967, 2});
  const HitRange hits = expected_hits(recorded.share, recorded.used, 128);
  CHECK(hits.low <= recorded.hits);
  CHECK(hits.high + 0.02 >= recorded.hits);
  CHECK(std::abs(hits.middle - recorded.hits) < 0.15);
  CHECK(hits.low == Approx(recorded.share));  // nobody knows: as a router that chooses evenly
}

TEST_CASE("A known shape is estimated without a file: more memory, more tokens per second") {
  const Estimate made = estimate("qwen3-30b-a3b", {3 * GiB, 6 * GiB, 12 * GiB, 24 * GiB});
  CHECK(made.experts == 128);
  CHECK(made.experts_used == 8);
  CHECK(made.file_bytes > 15 * GiB);
  CHECK(made.file_bytes < 18 * GiB);
  CHECK_FALSE(made.drive.measured);
  REQUIRE(made.budgets.size() == 4);
  double before = 0;
  double read_before = INFINITY;
  for (const Budget& budget : made.budgets) {
    REQUIRE(budget.refused.empty());
    const Prediction& prediction = budget.prediction;
    CHECK(prediction.low > 0);
    CHECK(prediction.low <= prediction.middle);
    CHECK(prediction.middle <= prediction.high);
    CHECK(prediction.middle >= before * (1 - 1e-9));  // where computing binds, the same
    CHECK(prediction.drive_bytes_per_token <= read_before);
    CHECK(budget.plan.total_bytes() <= budget.ram_bytes);
    before = prediction.middle;
    read_before = prediction.drive_bytes_per_token;
  }
  CHECK(made.budgets.back().prediction.drive_bytes_per_token == 0);
  CHECK(made.budgets.back().prediction.binds != Binds::drive);
  const std::string table = estimate_table(made);
  CHECK(table.find("never measured") != std::string::npos);
  CHECK(table.find("24.0 GiB") != std::string::npos);
  CHECK(estimate_json(made).find("budgets")->as_array()->size() == 4);
  // A drive that is too small for the file is told so; not where the file lies there already.
  Estimate tight = made;
  tight.file_bytes = 20 * GiB;
  tight.disk_free_bytes = 15 * GiB;
  CHECK(estimate_table(tight).find("15.0 GiB free: not enough, 5.00 GiB short") !=
        std::string::npos);
  tight.on_disk = true;
  CHECK(estimate_table(tight).find("short") == std::string::npos);
}

TEST_CASE("A budget that is too small says what would do, and the others are there") {
  const Estimate made = estimate("gpt-oss-20b", {256 * MiB, 16 * GiB});
  CHECK(made.budgets.front().refused.find("--cache") != std::string::npos);
  CHECK(made.budgets.front().refused.find("/proc") == std::string::npos);
  CHECK(made.budgets.back().refused.empty());
}

TEST_CASE("The beginning of a file with its header is enough, and less is not") {
  std::ifstream file(small_model(), std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  const Estimate whole = estimate(small_model(), {1 * GiB});
  CHECK(whole.complete);
  CHECK(whole.file_bytes == bytes.str().size());
  const TempFolder folder;
  const std::size_t most = bytes.str().size() - whole.trunk_bytes / 2;
  const Estimate cut = estimate(folder.write("m.gguf", bytes.str().substr(0, most)), {1 * GiB});
  CHECK_FALSE(cut.complete);
  CHECK(cut.pool_bytes == whole.pool_bytes);
  CHECK(cut.trunk_bytes == whole.trunk_bytes);
  EstimateOptions options;
  for (const std::size_t length : {std::size_t{0}, std::size_t{3}, std::size_t{500}}) {
    options.model = folder.write("short.gguf", bytes.str().substr(0, length));
    const auto refused = estimate_model(options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what.find("short.gguf") != std::string::npos);
  }
  options.model = "nothing-of-that-name";
  const auto absent = estimate_model(options);
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == ErrorCode::io);
  CHECK(absent.error().what.find("qwen3-30b-a3b") != std::string::npos);
}

TEST_CASE("The kernels' speed is measured for every type that has a product") {
  const KernelTable& kernels = *supported_kernels().back();
  struct Types {
    DType experts, trunk;
  };
  // The last three have their scales apart from their codes.
  for (const Types types : {Types{DType::mxfp4, DType::q8_0}, Types{DType::q4_k, DType::f32},
                            Types{DType::fp4, DType::f8_e4m3}, Types{DType::awq, DType::awq}}) {
    const auto speed = measure_compute(kernels, types.experts, types.trunk, 2);
    REQUIRE(speed);
    CHECK(speed->memory_bytes_per_second > 1e8);
    CHECK(speed->expert_bytes_per_second > 1e7);
    CHECK(speed->trunk_bytes_per_second > 1e7);
  }
}

TEST_CASE("A drive that was not measured has a wide range, one that was has its own") {
  DriveProfile profile;
  profile.slowest_bytes_per_second = 0.9e9;
  profile.bytes_per_second = 1e9;
  profile.fastest_bytes_per_second = 1.1e9;
  const DriveRange measured = drive_range(profile, 1 * MiB);
  CHECK(measured.measured);
  CHECK(measured.low == 0.9e9);
  CHECK(measured.high == 1.1e9);
  CHECK_FALSE(drive_range({}, 1 * MiB).measured);
  CHECK(drive_range({}, 1 * MiB).low < drive_range({}, 1 * MiB).high / 5);
}

TEST_CASE("The luckiest cell of a noisy profile is not what is promised") {
  DriveProfile profile;
  profile.slowest_bytes_per_second = 0.9e9;
  profile.bytes_per_second = 1e9;
  profile.fastest_bytes_per_second = 1.1e9;
  const auto cell = [](std::uint64_t piece, std::uint32_t depth, double rate) {
    ReadRate made;
    made.piece_bytes = piece;
    made.depth = depth;
    made.bytes_per_second = rate;
    made.p50_us = 500;
    return made;
  };
  profile.grid = {cell(1 * MiB, 1, 0.5e9), cell(1 * MiB, 8, 1.1e9), cell(1 * MiB, 16, 3e9),
                  cell(2 * MiB, 8, 1.2e9), cell(64 * KiB, 64, 0.4e9)};
  const DriveRange range = drive_range(profile, 1 * MiB);
  CHECK(range.middle == 1.2e9);
  CHECK(range.low <= 1.1e9);
  CHECK(range.high >= 1.2e9);
  CHECK(range.latency_seconds == Approx(500e-6));
}

TEST_CASE("Gate and up of a packed expert are one read where the drive reads larger ones faster") {
  const auto slice = [](std::uint64_t offset) {
    return MatrixExtent{.type = DType::f32,
                        .file = 0,
                        .offset_bytes = offset,
                        .row_bytes = 1 * MiB,
                        .rows = 1,
                        .columns = 1};
  };
  const ExpertExtents extents({{{slice(0), slice(1 * MiB), slice(2 * MiB)}}});
  const std::vector<std::uint32_t> blocks = {4096};
  const auto reads = [&](double gain, bool measured) {
    const RangeOfRead range = [&](std::uint64_t bytes) {
      const double rate = bytes > 1 * MiB ? gain * 1e9 : 1e9;
      return DriveRange{rate, rate, rate, measured, 0};
    };
    return joined_layout(extents, blocks, range).at({0, 0}).read_count;
  };
  CHECK(reads(1.2, true) == 2);
  CHECK(reads(1.02, true) == 3);
  CHECK(reads(0.8, true) == 3);
  CHECK(reads(1.2, false) == 3);
}

TEST_CASE("What other programs keep busy stands in the table, for speeds come out too low") {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path("proc/pressure"));
  folder.write("proc/pressure/cpu", "some avg10=42.00 avg60=1.00 avg300=1.00 total=1\n");
  folder.write("proc/pressure/io", "some avg10=0.00 avg60=1.00 avg300=1.00 total=1\n");
  std::string root = folder.path("");
  root.pop_back();
  EstimateOptions options;
  options.model = small_model();
  options.ram_bytes = {1 * GiB};
  options.config.threads = 1;
  options.root = root;
  const auto busy = estimate_model(options);
  REQUIRE(busy);
  CHECK(busy->busy == "cpu");
  CHECK(estimate_table(*busy).find("other programs keep cpu busy now") != std::string::npos);
  CHECK(estimate_json(*busy).find("busy")->as_string() != nullptr);
  folder.write("proc/pressure/cpu", "some avg10=4.00 avg60=1.00 avg300=1.00 total=1\n");
  const auto calm = estimate_model(options);
  REQUIRE(calm);
  CHECK(calm->busy.empty());
  CHECK(estimate_table(*calm).find("busy") == std::string::npos);
}

TEST_CASE("A file's drive is asked; of a shape's it is said how old the profile is") {
  const TempFolder folder;
  const auto drive = find_drive(".");
  REQUIRE(drive);
  DriveProfile profile;
  profile.drive_key = drive->key;
  profile.measured_at = std::time(nullptr) - 3 * 86'400 - 60;
  profile.file_bytes = 1 * GiB;
  profile.grid = {{.piece_bytes = 1 * MiB, .depth = 8, .bytes_per_second = 2e9}};
  profile.piece_bytes = 1 * MiB;
  profile.queue_depth = 8;
  profile.bytes_per_second = profile.slowest_bytes_per_second = profile.fastest_bytes_per_second =
      2e9;
  REQUIRE(save_profile(folder.path("kept"), profile));
  EstimateOptions options;
  options.model = "olmoe-1b-7b";
  options.ram_bytes = {4 * GiB};
  options.config.threads = 1;
  options.profile_folder = folder.path("kept");
  const auto shape = estimate_model(options);
  REQUIRE(shape);
  CHECK(shape->drive_now == 0);
  CHECK(shape->drive_from ==
        "profile of 3 days ago, not asked how fast it is now: a shape has no file");
  CHECK(estimate_table(*shape).find(shape->drive_from) != std::string::npos);

  const std::string path = folder.write("model.gguf", "");
  std::filesystem::copy(MILLRACE_SOURCE_ROOT "/model/embedded/little-tales-moe-42M-mxfp4.gguf",
                        path, std::filesystem::copy_options::overwrite_existing);
  const auto file = File::open(path, DirectMode::automatic);
  REQUIRE(file);
  if (!file->direct()) return;  // memory, not a drive
  options.model = path;
  options.profile_folder = folder.path("none");
  const auto asked = estimate_model(options);
  REQUIRE(asked);
  CHECK(asked->drive_now > 0);
  CHECK(asked->drive.measured);
  CHECK(asked->drive_from.find(" just now") != std::string::npos);
}
