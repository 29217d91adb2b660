// Normal form C, and tokenizers that ask for it.
#include "model/tokenizer/nfc.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;

TEST_CASE("nfc: characters in pieces become one, compatibility forms stay") {
  CHECK(to_nfc("e\u0301") == "\u00E9");
  CHECK(to_nfc("a\u0323\u0302") == "\u1EAD");       // marks in canonical order
  CHECK(to_nfc("a\u0302\u0323") == "\u1EAD");       // and out of it
  CHECK(to_nfc("\u1100\u1161\u11A8") == "\uAC01");  // Hangul, by rule
  CHECK(to_nfc("\u212B") == "\u00C5");              // the sign of Ångström is the letter
  CHECK(to_nfc("\u0958") == "\u0915\u093C");        // excluded from composition
  CHECK(to_nfc("\uFB01 \u00BD x") == "\uFB01 \u00BD x");
  CHECK(to_nfc("\U0001D15E") == "\U0001D157\U0001D165");
  CHECK(to_nfc("") == "");
}

TEST_CASE("nfc: bytes that are no UTF-8 stay where they are, between stretches in normal form") {
  CHECK(to_nfc("e\xCC\xFF"
               "e\u0301\xFF"
               "\u0301") ==
        "e\xCC\xFF"
        "\u00E9\xFF"
        "\u0301");
  CHECK(to_nfc("\xED\xA0\x80"
               "e\u0301") == "\xED\xA0\x80\u00E9");
  CHECK(to_nfc(std::string("a\0e\u0301", 5)) == std::string("a\0\u00E9", 4));
}

TEST_CASE("nfc: what is in normal form for certain is, and once is enough") {
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (unsigned k = 0, count = below(random, 24); k < count; ++k) {
      if (below(random, 2) == 0) text += static_cast<char>(below(random, 256));
      else text += "e\u0301\u0323\u1100\u1161"[below(random, 11)];
    }
    const std::string once = to_nfc(text);
    CHECK(to_nfc(once) == once);
    if (!may_change_by_nfc(text)) CHECK(once == text);
  }
  CHECK_FALSE(may_change_by_nfc("caf\u00E9 \u02FF"));
  CHECK(may_change_by_nfc("\u0300"));
}

TEST_CASE("nfc: a tokenizer that asks for it has the ids of the composed text, others do not") {
  const auto ids = [](bool asked, const std::string& text) {
    BpeBuilder builder("qwen2");
    builder.set("normalizer_nfc", asked).token("<|im_end|>", 3);
    const Tokenizer tokenizer = builder.tokenizer();
    CHECK(tokenizer.normalizes() == asked);
    auto made = tokenizer.encode(text, {.parse_special = true});
    REQUIRE(made.has_value());
    return *made;
  };
  CHECK(ids(true, "re\u0301sume\u0301") == ids(true, "r\u00E9sum\u00E9"));
  CHECK(ids(false, "re\u0301sume\u0301") != ids(false, "r\u00E9sum\u00E9"));
  CHECK(ids(true, "r\u00E9sum\u00E9\xFF") == ids(false, "r\u00E9sum\u00E9\xFF"));
  // A mark behind a special token stays apart from it.
  CHECK(ids(true, "e<|im_end|>\u0301") == ids(false, "e<|im_end|>\u0301"));
}
