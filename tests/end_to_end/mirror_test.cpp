// Runs that read copies of the embedded model: the same bits with one drive and with several, also
// when one of them breaks on the way.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/generate.h"
#include "runtime/pack.h"
#include "tests/support/faulty_reader.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;
using testing::Breakage;
using testing::FaultyReader;
using testing::TempFolder;

namespace {

// A streaming run: a small cache, and layers of the trunk in a ring.
EngineConfig streaming_config() {
  EngineConfig config;
  config.model_path = embedded_model();
  config.threads = 2;
  config.context = 128;
  config.cache = {SizeSpec::Kind::percent, 0, 10};
  config.trunk = {SizeSpec::Kind::percent, 0, 80};
  config.piece_bytes = 8 * KiB;  // so that the small experts are divided
  return config;
}

struct Outcome {
  std::uint64_t hash = 0;
  std::optional<Error> error;
  std::vector<DriveReads> drives;
  Status files = {};  // Engine::check_files() at the end
};

Outcome run(const EngineConfig& config) {
  const auto engine = open_engine(config);
  GenerateOptions options;
  const auto prompt = engine->engine->tokenizer().encode("The wolf looked at the old woman.", {});
  REQUIRE(prompt.has_value());
  options.prompt = *prompt;
  options.tokens_max = 12;
  options.sampling.seed = 7;
  const auto result = generate(*engine->engine, options, [](std::string_view) {});
  if (!result) return {.error = result.error(), .drives = engine->engine->reader().drives()};
  return {result->state_hash, result->error, engine->engine->reader().drives(),
          engine->engine->check_files()};
}

// Copies of the embedded model, which all lie on one drive here: the warning is not wanted.
class Copies {
 public:
  Copies() { set_log_level(LogLevel::off); }
  ~Copies() { set_log_level(LogLevel::warning); }
  std::string make(const char* name) {
    const std::string path = folder.path(name);
    std::filesystem::copy_file(embedded_model(), path);
    return path;
  }
  const TempFolder folder;
};

std::uint64_t hash_of_one_drive() {
  static const std::uint64_t hash = [] {
    const Outcome outcome = run(streaming_config());
    REQUIRE_FALSE(outcome.error);
    return outcome.hash;
  }();
  return hash;
}

std::uint64_t pieces_max(const DriveReads& drive) { return drive.bytes / (8 * KiB); }

}  // namespace

TEST_CASE("Mirrors, striped or not, give the bits of one drive, and every drive reads") {
  const auto io = GENERATE(ReaderKind::uring, ReaderKind::threads);
  const bool stripe = GENERATE(false, true);
  const std::size_t count = GENERATE(1u, 3u);
  CAPTURE(io == ReaderKind::uring, stripe, count);
  Copies copies;
  EngineConfig config = streaming_config();
  config.io = io;
  config.stripe = stripe;
  for (std::size_t i = 0; i < count; ++i)
    config.mirror_paths.push_back(copies.make(("copy" + std::to_string(i)).c_str()));
  const Outcome outcome = run(config);
  REQUIRE_FALSE(outcome.error);
  CHECK(outcome.files.has_value());
  CHECK(outcome.hash == hash_of_one_drive());
  REQUIRE(outcome.drives.size() == 1 + count);
  for (const DriveReads& drive : outcome.drives) {
    CHECK(pieces_max(drive) > 100);
    CHECK(drive.dropped.empty());
  }
}

TEST_CASE("A drive that breaks in the middle of a run is dropped, and the bits stay the same") {
  const auto io = GENERATE(ReaderKind::uring, ReaderKind::threads);
  const bool stripe = GENERATE(false, true);
  const std::uint32_t broken = GENERATE(0u, 1u);
  const std::uint64_t after = GENERATE(0u, 700u, 2500u);  // in the trunk, or among the experts
  CAPTURE(io == ReaderKind::uring, stripe, broken, after);
  Copies copies;
  Breakage breakage{broken, 1, EIO, after};
  EngineConfig config = streaming_config();
  config.io = io;
  config.stripe = stripe;
  config.mirror_paths = {copies.make("copy")};
  config.reader_factory = &FaultyReader::make;
  config.reader_context = &breakage;
  const Outcome outcome = run(config);
  REQUIRE(breakage.failed > 0);
  REQUIRE_FALSE(outcome.error);
  CHECK(outcome.hash == hash_of_one_drive());
  REQUIRE(outcome.drives.size() == 2);
  CHECK(outcome.drives[1 - broken].dropped.empty());
  CHECK(outcome.drives[broken].dropped.find("EIO") != std::string::npos);
  CHECK(outcome.drives[broken].reads <= after + breakage.failed);
}

TEST_CASE("When the last drive breaks too, the run ends with its error") {
  const bool stripe = GENERATE(false, true);
  Copies copies;
  Breakage breakage{0, 2, EIO, 2000};
  EngineConfig config = streaming_config();
  config.stripe = stripe;
  config.mirror_paths = {copies.make("copy")};
  config.reader_factory = &FaultyReader::make;
  config.reader_context = &breakage;
  const Outcome outcome = run(config);
  REQUIRE(outcome.error);
  CHECK(outcome.error->code == ErrorCode::io);
  CHECK(outcome.error->what.find("EIO") != std::string::npos);
  const bool first_dropped = !outcome.drives[0].dropped.empty();
  CHECK(first_dropped != !outcome.drives[1].dropped.empty());
  const std::string& last = first_dropped ? config.mirror_paths[0] : config.model_path;
  CHECK(outcome.error->what.find(last) == 0);
}

TEST_CASE("A packed pool and its mirror give the bits of the model's own experts") {
  const bool stripe = GENERATE(false, true);
  Copies copies;
  const auto engine = open_engine(streaming_config());
  const std::string pool = copies.folder.path("pool"), copy = copies.folder.path("pool copy");
  ProgressLine quiet(false);
  const ModelSpec& spec = engine->engine->spec();
  REQUIRE(pack_model(spec, layer_order(spec.experts), pool, quiet, engine->cancel));
  std::filesystem::copy_file(pool, copy);
  EngineConfig config = streaming_config();
  config.stripe = stripe;
  config.pool_path = pool;
  config.mirror_paths = {copy};
  SECTION("sound") {
    const Outcome outcome = run(config);
    REQUIRE_FALSE(outcome.error);
    CHECK(outcome.hash == hash_of_one_drive());
    for (const DriveReads& drive : outcome.drives) CHECK(pieces_max(drive) > 100);
  }
  SECTION("next to a copy of the model itself") {
    config.mirror_paths.push_back(copies.make("copy"));
    const Outcome outcome = run(config);
    REQUIRE_FALSE(outcome.error);
    CHECK(outcome.hash == hash_of_one_drive());
    for (const DriveReads& drive : outcome.drives) CHECK(drive.bytes > 0);
  }
}

TEST_CASE("A packed pool is known by its own drive, not by the model's") {
  const TempFolder folder;
  // Another file system: memory.
  std::string elsewhere = "/dev/shm/millrace-test-XXXXXX";
  if (mkdtemp(elsewhere.data()) == nullptr) return;
  const std::string pool = elsewhere + "/pool";
  {
    const auto model = open_engine(streaming_config());
    const ModelSpec& spec = model->engine->spec();
    ProgressLine quiet(false);
    REQUIRE(pack_model(spec, layer_order(spec.experts), pool, quiet, model->cancel));
  }
  EngineConfig config = streaming_config();
  config.pool_path = pool;
  {
    const auto packed = open_engine(config);
    const RunDrive& drive = packed->engine->drives().front();
    CHECK(drive.path == pool);
    CHECK(drive.drive.key == find_drive(pool)->key);
    CHECK(drive.expert_file == 1);
  }
  std::filesystem::remove_all(elsewhere);
}

TEST_CASE("Of a drive's files the one that experts come from is asked") {
  constexpr std::uint32_t none = ReadDrive::no_file;
  const std::uint32_t own[] = {0, 1, 2}, pool_alone[] = {none, none, 5},
                      model_alone[] = {3, 4, none};
  CHECK(expert_file(own, false) == 0);
  CHECK(expert_file(own, true) == 2);
  CHECK(expert_file(pool_alone, true) == 5);
  CHECK(expert_file(model_alone, true) == 3);
}
