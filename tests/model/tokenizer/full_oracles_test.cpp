// Over the full oracle set (meson option `oracles`): whole vocabularies, unpacked by the build.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/format/gguf.h"
#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

Tokenizer open(const std::string& path) {
  Result<Checkpoint> checkpoint = open_gguf(path);
  if (!checkpoint) FAIL(checkpoint.error().what);
  return load(checkpoint.value());
}

}  // namespace

TEST_CASE("tokenizer: whole vocabularies give llama.cpp's ids") {
  unsigned vocabularies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MILLRACE_ORACLES "/tokenizers")) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().string();
    const std::vector<OraclePair> pairs = read_pairs(entry.path().string());
    INFO(name);
    CHECK(pairs.size() >= 20);
    CHECK(count_differences(open(MILLRACE_UNPACKED "/" + name + ".gguf"), pairs) == 0);
    WARN(name << ": " << pairs.size() << " pairs");
    ++vocabularies;
  }
  CHECK(vocabularies > 0);
}

TEST_CASE("tokenizer: the small vocabularies of the model oracles give llama.cpp's ids") {
  unsigned vocabularies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MILLRACE_ORACLES)) {
    const std::filesystem::path pairs_path = entry.path() / "text_pairs.json";
    if (!std::filesystem::exists(pairs_path)) continue;
    INFO(entry.path().string());
    const std::vector<OraclePair> pairs = read_pairs(pairs_path.string());
    CHECK(count_differences(open((entry.path() / "model.gguf").string()), pairs) == 0);
    ++vocabularies;
  }
  CHECK(vocabularies > 0);
}

TEST_CASE("tokenizer: the embedded model's held-out text has 56919 tokens and comes back") {
  const std::filesystem::path path =
      std::filesystem::path(MILLRACE_ORACLES).parent_path() / "model" / "heldout.txt";
  if (!std::filesystem::exists(path)) return;
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const Tokenizer tokenizer = open(MILLRACE_EMBEDDED_MODEL);
  const std::vector<TokenId> ids = encode(tokenizer, text.str());
  CHECK(ids.size() == 56919);
  CHECK(tokenizer.decode(ids, false) == text.str());
}
