#include "model/tokenizer/text_stream.h"

#include <catch2/catch.hpp>
#include <random>

#include "runtime/base/utf8.h"
#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;

TEST_CASE("text stream: characters come when they are complete") {
  const Tokenizer tokenizer = BpeBuilder().tokenizer();  // one token a byte
  TextStream stream(tokenizer);
  CHECK(stream.push('a') == "a");
  CHECK(stream.push(0xE2) == "");
  CHECK(stream.push(0x82) == "");
  CHECK(stream.push(0xAC) == "€");
  CHECK(stream.push(0xF0) == "");
  CHECK(stream.push(0x9F) == "");
  CHECK(stream.push(0x98) == "");
  CHECK(stream.push(0x81) == "😁");
  CHECK(stream.flush() == "");
}

TEST_CASE("text stream: bytes that can become no character are replaced at once") {
  const Tokenizer tokenizer = BpeBuilder().tokenizer();
  TextStream stream(tokenizer);
  CHECK(stream.push(0x80) == "\uFFFD");
  CHECK(stream.push(0xC0) == "\uFFFD");
  CHECK(stream.push(0xED) == "");
  CHECK(stream.push(0xA0) == "\uFFFD\uFFFD");  // a surrogate
  CHECK(stream.push(0xE2) == "");
  CHECK(stream.push('x') == "\uFFFDx");
  CHECK(stream.push(0xF0) == "");
  CHECK(stream.push(0x90) == "");
  CHECK(stream.flush() == "\uFFFD\uFFFD");
  CHECK(stream.flush() == "");
}

TEST_CASE("text stream: the pieces are the decoded text with its broken bytes replaced") {
  const Tokenizer tokenizer = BpeBuilder().tokenizer();
  std::mt19937 random(23);
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenId> ids;
    constexpr unsigned char likely[] = {'a',  0x80, 0x9F, 0xA0, 0xBF, 0xC2,
                                        0xE0, 0xE2, 0xED, 0xF0, 0xF4};
    for (unsigned i = below(random, 40); i > 0; --i)
      ids.push_back(likely[below(random, sizeof likely)]);
    TextStream stream(tokenizer);
    std::string text;
    for (const TokenId id : ids) text += stream.push(id);
    text += stream.flush();
    CHECK(text == utf8_replace_invalid(tokenizer.decode(ids, false)));
  }
}

TEST_CASE("text stream: control tokens are silent unless they are to be seen") {
  BpeBuilder builder;
  builder.token("<|end|>", 3).token("<tool>", 4).token("unused", 5);
  const Tokenizer tokenizer = builder.tokenizer();
  TextStream quiet(tokenizer);
  CHECK(quiet.push(256) == "");
  CHECK(quiet.push(257) == "<tool>");
  CHECK(quiet.push(258) == "");
  CHECK(quiet.push(-1) == "");
  CHECK(quiet.push(100000) == "");
  TextStream loud(tokenizer, {.show_special = true, .at_start = false});
  CHECK(loud.push(256) == "<|end|>");
  CHECK(loud.push(258) == "");
}

TEST_CASE("text stream: the added space goes at the start of a text, stays in a continuation") {
  SpmBuilder builder;
  builder.token("▁a", -1).token("a", -2);  // 259 260
  const Tokenizer tokenizer = builder.tokenizer();
  TextStream text(tokenizer, {.show_special = false, .at_start = true});
  CHECK(text.push(1) == "");
  CHECK(text.push(259) == "a");
  CHECK(text.push(259) == " a");
  TextStream continuation(tokenizer);
  CHECK(continuation.push(259) == " a");
}
