// Text to ids and back, for arbitrary bytes: nothing is lost, invalid UTF-8 included.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "model/format/gguf.h"
#include "model/tokenizer/text_stream.h"
#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

struct Named {
  std::string name;
  Tokenizer tokenizer;
};

// Real vocabularies, cut ones and the embedded model's.
std::vector<Named> vocabularies() {
  std::vector<Named> all;
  for (const CutVocabulary& cut : cut_vocabularies())
    all.push_back({cut.name, load(cut.checkpoint)});
  const auto embedded = open_gguf(MILLRACE_EMBEDDED_MODEL);
  REQUIRE(embedded.has_value());
  all.push_back({"embedded", load(*embedded)});
  return all;
}

// Bytes, characters of all lengths, words and white space, mixed.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> pieces = {
      "the",         " The",       "'s",   "12345",  "\n\n",   "   ",    "\t",    "\r\n",
      "é",           "e\u0301",    "ß",    "Ж",      "文字",   "ไทย",    "हिन्दी", "🦀",
      "👩‍🚀", "<|im_end|>", "</s>", "<0x41>", "\u00A0", "\u2028", "$%&",   "{}"};
  std::string text;
  for (unsigned i = 0, count = below(random, 40); i < count; ++i) {
    if (below(random, 3) == 0) text += static_cast<char>(below(random, 256));
    else text += pieces[below(random, static_cast<unsigned>(pieces.size()))];
  }
  return text;
}

void check_round_trip(const Named& vocabulary, const std::string& text) {
  // SPM writes spaces as U+2581, and so that character comes back as a space.
  if (vocabulary.tokenizer.model_name() == "llama" && text.find("\u2581") != std::string::npos)
    return;
  const std::vector<TokenId> ids = encode(vocabulary.tokenizer, text);
  INFO(vocabulary.name << ": " << Catch::StringMaker<std::string>::convert(text));
  REQUIRE(vocabulary.tokenizer.decode(ids, false) == text);
}

}  // namespace

TEST_CASE("tokenizer: every byte alone, twice and beside a letter comes back") {
  for (const Named& vocabulary : vocabularies()) {
    std::string all;
    for (int byte = 0; byte < 256; ++byte) {
      const std::string one(1, static_cast<char>(byte));
      check_round_trip(vocabulary, one);
      check_round_trip(vocabulary, one + one);
      check_round_trip(vocabulary, "a" + one + "b");
      all += one;
    }
    check_round_trip(vocabulary, all);
    check_round_trip(vocabulary, "");
  }
}

TEST_CASE("tokenizer: random mixtures of bytes and characters come back") {
  for (const Named& vocabulary : vocabularies()) {
    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) check_round_trip(vocabulary, random_text(random));
  }
}

TEST_CASE("tokenizer: a stream of tokens writes the whole text, with U+FFFD for what is no UTF-8") {
  for (const Named& vocabulary : vocabularies()) {
    const std::string text = " naïve 🦀文字\n";
    TextStream stream(vocabulary.tokenizer, {.show_special = false, .at_start = true});
    std::string written;
    for (const TokenId id : encode(vocabulary.tokenizer, text + "\xF0\x9F" + "a\xFF"))
      written += stream.push(id);
    written += stream.flush();
    INFO(vocabulary.name);
    CHECK(written == text + "\uFFFD\uFFFDa\uFFFD");
  }
}
