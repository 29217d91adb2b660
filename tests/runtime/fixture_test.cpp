// Fixtures: shapes that are the published models', weights that have the size they should, files
// that load and run.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <set>

#include "io/file.h"
#include "kernels/reference.h"
#include "model/format/open.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/evaluate.h"
#include "runtime/fixture/fixture.h"
#include "runtime/fixture/metadata.h"
#include "runtime/fixture/random_rows.h"
#include "runtime/fixture/tensor_rows.h"
#include "tests/support/temp_folder.h"

using namespace millrace;

namespace {

FixtureOptions options_of(const std::string& shape, const char* type,
                          const ShapeChanges& changes = {}) {
  FixtureOptions options;
  options.shape = *find_model_shape(shape);
  REQUIRE(change_shape(options.shape, changes));
  options.mix = *find_type_mix(type);
  return options;
}

// As small as the shape can be made by flags.
FixtureOptions small(const std::string& shape, const char* type, const std::string& path) {
  ShapeChanges changes{.layers = 4, .width = 256, .vocabulary = 2048, .context = 512};
  if (find_model_shape(shape)->experts > 0) {
    changes.experts = 16;
    changes.experts_used = 4;
    changes.expert_width = 64;
  }
  FixtureOptions options = options_of(shape, type, changes);
  options.path = path;
  return options;
}

void write(const FixtureOptions& options) {
  ProgressLine progress(false);
  const std::atomic<bool> cancel = false;
  const Status done = write_fixture(options, plan_fixture(options), progress, cancel);
  INFO((done ? "" : done.error().what));
  REQUIRE(done);
}

std::string bytes_of(const std::string& path) {
  const File file = *File::open(path, DirectMode::off);
  std::string bytes(file.size_bytes(), '\0');
  REQUIRE(file.read_exactly(0, bytes.data(), bytes.size()));
  return bytes;
}

}  // namespace

TEST_CASE("fixture: shapes have as many parameters as their publishers say") {
  // Of the files without layers that predict further tokens.
  const std::pair<const char*, double> published[] = {
      {"qwen3-30b-a3b", 30.53e9}, {"qwen3-235b-a22b", 235.09e9}, {"gpt-oss-20b", 20.91e9},
      {"gpt-oss-120b", 116.83e9}, {"mixtral-8x7b", 46.70e9},     {"olmoe-1b-7b", 6.92e9},
      {"glm-4.5-air", 106.85e9},  {"deepseek-v3", 671.03e9},     {"deepseek-v4-flash", 284e9},
      {"smollm2-135m", 134.5e6},  {"qwen2.5-1.5b", 1.544e9}};
  for (const auto& [name, parameters] : published) {
    double sum = 0;
    for (const FixtureTensor& tensor : plan_fixture(options_of(name, "f32")).tensors)
      if (tensor.content == Content::random)
        sum += static_cast<double>(tensor.ne[0]) * static_cast<double>(tensor.rows());
    CAPTURE(name, sum, parameters);
    CHECK(sum == Approx(parameters).epsilon(0.002));
  }
  CHECK(model_shapes().size() == std::size(published));
}

TEST_CASE("fixture: experts of published mixes are as large as real files have them") {
  // Qwen3-30B-A3B as Q4_K_M: experts of two sizes, in a routing trace of that file.
  const FixturePlan qwen = plan_fixture(options_of("qwen3-30b-a3b", "q4_k_m"));
  CHECK(qwen.expert_bytes == 3'059'712);
  CHECK(plan_fixture(options_of("gpt-oss-120b", "mxfp4")).expert_bytes == 3 * 4'406'400);
  CHECK(plan_fixture(options_of("deepseek-v4-flash", "iq2_xxs")).expert_bytes ==
        2 * 2'162'688 + 2'752'512);
}

TEST_CASE("fixture: random rows have the wanted size in every type, and no mean") {
  constexpr std::size_t columns = 1 << 16;
  for (std::uint32_t id = 0; id < dtype_count; ++id) {
    const auto type = static_cast<DType>(id);
    if (find_dtype(id) == nullptr || !RandomRows::supports(type)) continue;
    for (const float rms : {0.01F, 0.3F}) {
      std::vector<std::byte> row(dtype_row_bytes(type, columns));
      std::vector<double> values(columns);
      RandomRows(type, rms).fill(7, columns, row.data());
      reference::decode_row(type, row.data(), columns, values.data());
      double sum = 0;
      double squares = 0;
      for (const double value : values) {
        sum += value;
        squares += value * value;
      }
      CAPTURE(dtype_info(type).name, rms, sum / columns);
      CHECK(std::sqrt(squares / columns) == Approx(rms).epsilon(0.06));
      CHECK(std::abs(sum / columns) < 0.03 * rms);
    }
    std::vector<std::byte> zeros(dtype_row_bytes(type, 256));
    std::vector<double> values(256);
    RandomRows(type, 0).fill(7, 256, zeros.data());
    reference::decode_row(type, zeros.data(), 256, values.data());
    CHECK(std::all_of(values.begin(), values.end(), [](double value) { return value == 0; }));
  }
}

TEST_CASE("fixture: a made vocabulary has its size, no text twice, and gives back any text") {
  for (const ModelShape& shape : model_shapes()) {
    const MadeVocabulary made = make_vocabulary(*shape.tokenizer, shape.vocabulary);
    CAPTURE(shape.name);
    CHECK(made.tokens.size() == shape.vocabulary);
    CHECK(std::set<std::string>(made.tokens.begin(), made.tokens.end()).size() ==
          made.tokens.size());
    for (const SpecialToken& special : shape.tokenizer->special)
      CHECK(made.tokens[special.id] == special.text);
  }
  const testing::TempFolder folder;
  for (const char* shape : {"mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"}) {
    const std::string path = folder.path(shape);
    write(small(shape, "q8_0", path));
    const Checkpoint checkpoint = *open_checkpoint(path);
    const Tokenizer tokenizer = *Tokenizer::from_checkpoint(checkpoint);
    const std::string text = "The rose,\n in Größe 7…\x01\xff";
    const auto ids = *tokenizer.encode(text, {.parse_special = false, .add_bos_eos = false});
    CHECK(tokenizer.decode(ids, false) == text);
    CHECK(ids.size() < text.size());
  }
}

TEST_CASE("fixture: every shape in a type of its kind runs, with finite logits of a sane spread") {
  const testing::TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"qwen3-30b-a3b", "mxfp4"}, {"gpt-oss-20b", "mxfp4"},  {"mixtral-8x7b", "q4_0"},
      {"olmoe-1b-7b", "q4_k_m"},  {"glm-4.5-air", "q5_k_m"}, {"deepseek-v3", "nvfp4"},
      {"smollm2-135m", "q2_k"},   {"qwen2.5-1.5b", "bf16"},  {"qwen3-235b-a22b", "iq4_xs"}};
  for (const auto& [shape, type] : cases) {
    CAPTURE(shape, type);
    const std::string path = folder.path("model.gguf");
    write(small(shape, type, path));
    EngineConfig config;
    config.model_path = path;
    config.threads = 1;
    ProgressLine progress(false);
    const std::atomic<bool> cancel = false;
    auto engine = Engine::create(config, progress, cancel);
    INFO((engine ? "" : engine.error().what));
    REQUIRE(engine);
    LogitsRun run;
    run.ids = {300, 301, 1500, 7, 7};
    std::vector<TokenId> greedy;
    const Status done = run_logits(
        **engine, run,
        [&](std::size_t, const float* row) {
          double squares = 0;
          for (std::size_t i = 0; i < 2048; ++i) squares += static_cast<double>(row[i]) * row[i];
          CHECK(std::sqrt(squares / 2048) > 1);
          CHECK(std::sqrt(squares / 2048) < 6);
          return true;
        },
        greedy);
    INFO((done ? "" : done.error().what));
    CHECK(done);
  }
}

TEST_CASE("fixture: the same options give the same bytes, another seed others") {
  const testing::TempFolder folder;
  FixtureOptions options = small("qwen3-30b-a3b", "q4_k_m", folder.path("a"));
  write(options);
  const std::string first = bytes_of(options.path);
  CHECK(first.size() == plan_fixture(options).file_bytes);
  options.path = folder.path("b");
  write(options);
  CHECK(bytes_of(options.path) == first);
  options.seed = 2;
  write(options);
  CHECK(bytes_of(options.path) != first);
}

TEST_CASE("fixture: rows of a hash table name distinct experts that exist") {
  const FixtureOptions options = small("deepseek-v4-flash", "q8_0", "");
  const FixturePlan plan = plan_fixture(options);
  const auto table = std::find_if(
      plan.tensors.begin(), plan.tensors.end(),
      [](const FixtureTensor& tensor) { return tensor.content == Content::hash_table; });
  REQUIRE(table != plan.tensors.end());
  const TensorRows rows(*table, options.shape, 1);
  std::set<std::int32_t> seen;
  for (std::uint64_t number = 0; number < table->rows(); ++number) {
    std::int32_t ids[4];
    REQUIRE(table->row_bytes() == sizeof ids);
    rows.make(number, reinterpret_cast<std::byte*>(ids));
    CHECK(std::set<std::int32_t>(ids, ids + 4).size() == 4);
    seen.insert(ids, ids + 4);
  }
  CHECK(seen.size() == 16);
  CHECK(*seen.begin() == 0);
  CHECK(*seen.rbegin() == 15);
}

TEST_CASE("fixture: changes that make no model are refused with the flag") {
  const auto refused = [](const char* name, const ShapeChanges& changes, const char* flag) {
    ModelShape shape = *find_model_shape(name);
    const Status done = change_shape(shape, changes);
    REQUIRE_FALSE(done);
    CAPTURE(done.error().what);
    CHECK(done.error().code == ErrorCode::usage);
    CHECK(done.error().what.find(flag) != std::string::npos);
  };
  refused("qwen3-30b-a3b", {.layers = 100000}, "--layers 100000");
  refused("qwen3-30b-a3b", {.experts = 4}, "--experts-used 8");
  refused("qwen3-30b-a3b", {.expert_width = 100}, "--expert-width 100");
  refused("qwen3-30b-a3b", {.width = 1000}, "--width 1000");
  refused("smollm2-135m", {.experts = 8}, "dense");
  refused("olmoe-1b-7b", {.vocabulary = 100}, "--vocabulary 100");
}
