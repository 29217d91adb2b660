#include "model/tokenizer/spm.h"

#include <catch2/catch.hpp>

#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

using Ids = std::vector<TokenId>;
constexpr TokenId first = 259;  // the first token that a test adds
constexpr TokenId byte_token(unsigned byte) { return static_cast<TokenId>(byte + 3); }

}  // namespace

TEST_CASE("spm: pairs are joined by the highest score, the leftmost of equals") {
  SpmBuilder builder;
  builder.token("▁", -10).token("a", -11).token("b", -12);                  // 259 260 261
  builder.token("ab", -3).token("ba", -2).token("▁a", -4).token("aa", -3);  // 262 263 264 265
  const Tokenizer tokenizer = builder.tokenizer();
  CHECK(encode(tokenizer, "aba") == Ids{first + 5, first + 4});  // ▁a ba
  CHECK(encode(tokenizer, "ab") == Ids{first, first + 3});
  CHECK(encode(tokenizer, "aaa") == Ids{first, first + 6, first + 1});
}

TEST_CASE("spm: positive, zero and negative scores are in order") {
  SpmBuilder builder;
  builder.token("▁", 0).token("a", 0).token("b", 0).token("c", 0).token("d", 0);
  builder.token("ab", 2).token("bc", 3);       // 264 265
  builder.token("cd", -0.0).token("da", 0.0);  // 266 267: equal
  const Tokenizer tokenizer = builder.tokenizer();
  CHECK(encode(tokenizer, "abc") == Ids{first, first + 1, first + 6});
  CHECK(encode(tokenizer, "cda") == Ids{first, first + 7, first + 1});
}

TEST_CASE("spm: what is no token is written in bytes, valid or not") {
  SpmBuilder builder;
  builder.token("▁", -1).token("é", -2);
  const Tokenizer tokenizer = builder.tokenizer();
  CHECK(encode(tokenizer, "éè") == Ids{first, first + 1, byte_token(0xC3), byte_token(0xA8)});
  const std::string texts[] = {"\xFF", "a\xC3", "中\xE4\xB8", std::string("\0", 1), "  x\n"};
  for (const std::string& text : texts)
    CHECK(tokenizer.decode(encode(tokenizer, text), false) == text);
}

TEST_CASE("spm: raw text gives no control, byte or unknown tokens") {
  SpmBuilder builder;
  for (const char* piece : {"▁", "<", "s", ">", "<s", "0", "x", "A", "<0", "<0x", "<0x0", "<0x0A"})
    builder.token(piece, -1);
  const Tokenizer tokenizer = builder.tokenizer();
  for (const std::string_view text : {"<s>", "<0x0A>", "<unk>"}) {
    const Ids ids = encode(tokenizer, text);
    CHECK(ids.size() > 2);
    CHECK(tokenizer.decode(ids, false) == text);
  }
}

TEST_CASE("spm: a space goes before the text and before what follows a special token") {
  SpmBuilder builder;
  builder.token("▁", -5).token("a", -6).token("▁a", -1).token("<sep>", 0, 3);  // 259 … 262
  const Tokenizer tokenizer = builder.tokenizer();
  const EncodeOptions options = {.parse_special = true, .add_bos_eos = true};
  CHECK(encode(tokenizer, "a<sep>a", options) == Ids{1, first + 2, first + 3, first + 2});
  CHECK(encode(tokenizer, "", options) == Ids{1});
  builder.set("add_space_prefix", false).set("add_bos_token", false).set("add_eos_token", true);
  const Tokenizer bare = builder.tokenizer();
  CHECK(encode(bare, "a<sep>a", options) == Ids{first + 1, first + 3, first + 1, 2});
  CHECK(bare.decode(encode(bare, " a"), false) == " a");
}

TEST_CASE("spm: decoding drops the one space that encoding added") {
  SpmBuilder builder;
  builder.token("▁", -5).token("a", -6).token("▁a", -1);
  const Tokenizer tokenizer = builder.tokenizer();
  CHECK(tokenizer.decode(Ids{1, first + 2, first + 2}, false) == "a a");
  CHECK(tokenizer.decode(Ids{first, first + 2}, false) == " a");
  CHECK(tokenizer.decode(Ids{first + 1, first + 2}, false) == "a a");
}

TEST_CASE("spm: the forms of byte tokens") {
  CHECK(spm_byte("<0x0A>") == 10);
  CHECK(spm_byte("<0xfF>") == 255);
  for (const std::string_view text : {"", "<0x0A", "<0x0G>", "<0x0AA>", "(0x0A>", "<0xA>"})
    CHECK(spm_byte(text) == -1);
}

TEST_CASE("spm: a missing byte token is the unknown token") {
  CheckpointBuilder builder;
  builder.set("model", std::string("llama"))
      .set("tokens", std::vector<std::string>{"<unk>", "<s>", "</s>", "▁", "a"})
      .set("token_type", std::vector<std::int64_t>{2, 3, 3, 1, 1});
  const Tokenizer tokenizer = load(builder.build());
  CHECK(encode(tokenizer, "ax") == Ids{3, 4, 0});
  CHECK(tokenizer.decode(Ids{3, 4, 0}, false) == "a");
  CHECK(tokenizer.decode(Ids{3, 4, 0}, true) == "a<unk>");
}

TEST_CASE("spm: long runs of one character are no trouble") {
  SpmBuilder builder;
  builder.token("▁", -9).token("a", -9);
  std::string spaces = "▁", letters = "a";
  for (int i = 0; i < 4; ++i) {
    spaces += spaces;
    letters += letters;
    builder.token(spaces, -8 + i).token(letters, -8 + i);
  }
  const Tokenizer tokenizer = builder.tokenizer();
  const std::size_t count = std::size_t{1} << 18;
  CHECK(encode(tokenizer, std::string(count, ' ')).size() == count / 16 + 1);
  CHECK(encode(tokenizer, std::string(count, 'a')).size() == count / 16 + 1);
}

TEST_CASE("spm: a token that goes over a space is found, and without one nothing changes") {
  SpmBuilder builder;
  builder.token("▁", -5).token("a", -6).token("▁a", -3).token("▁▁", -2);  // 259 260 261 262
  const std::string text = "a a  a   aa ";
  const Ids words = encode(builder.tokenizer(), text);
  CHECK(words ==
        Ids{first + 2, first + 2, first + 3, first + 1, first + 3, first + 2, first + 1, first});
  builder.token("b▁c", -100);  // words hang together now; the text has none
  CHECK(encode(builder.tokenizer(), text) == words);
  builder.token("a▁", -1);  // 264
  CHECK(encode(builder.tokenizer(), "a a") == Ids{first, first + 5, first + 1});
}
