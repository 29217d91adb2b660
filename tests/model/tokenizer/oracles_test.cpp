#include <catch2/catch.hpp>
#include <set>

#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;

TEST_CASE("tokenizer: every cut vocabulary gives llama.cpp's ids") {
  const std::vector<CutVocabulary> vocabularies = cut_vocabularies();
  CHECK(vocabularies.size() == 15);
  for (const CutVocabulary& vocabulary : vocabularies) {
    INFO(vocabulary.name);
    CHECK(vocabulary.pairs.size() >= 20);
    CHECK(count_differences(load(vocabulary.checkpoint), vocabulary.pairs) == 0);
  }
}

TEST_CASE("tokenizer: the texts of the oracles come back from their ids") {
  for (const CutVocabulary& vocabulary : cut_vocabularies()) {
    const Tokenizer tokenizer = load(vocabulary.checkpoint);
    for (const OraclePair& pair : vocabulary.pairs) {
      // SPM writes a space for it, by design.
      if (tokenizer.model_name() == "llama" && pair.text.find("▁") != std::string::npos) continue;
      INFO(vocabulary.name << ": " << pair.text);
      CHECK(tokenizer.decode(encode(tokenizer, pair.text), false) == pair.text);
    }
  }
}

TEST_CASE("tokenizer: the ends of generation of the oracles' models are those of their makers") {
  std::set<std::string> seen;
  for (const CutVocabulary& vocabulary : cut_vocabularies()) {
    const Tokenizer tokenizer = load(vocabulary.checkpoint);
    const auto ends = [&](std::string_view text) {
      const auto id = tokenizer.find_token(text);
      return id.has_value() && tokenizer.is_end_of_generation(*id);
    };
    if (vocabulary.name == "gpt-oss" || vocabulary.name == "tiny-gpt-4o") {
      CHECK(ends("<|return|>"));
      CHECK(ends("<|call|>"));
      CHECK_FALSE(ends("<|end|>"));
      seen.insert(vocabulary.name);
    }
    if (vocabulary.name == "qwen3") {
      CHECK(ends("<|im_end|>"));
      CHECK(ends("<|endoftext|>"));
      CHECK_FALSE(ends("<|im_start|>"));
      seen.insert(vocabulary.name);
    }
  }
  CHECK(seen.size() == 3);
}
