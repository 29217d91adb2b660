#include <catch2/catch.hpp>

#include "model/tokenizer/byte_alphabet.h"
#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

using Ids = std::vector<TokenId>;

std::string refusal(const Checkpoint& checkpoint, ErrorCode code) {
  const Result<Tokenizer> made = Tokenizer::from_checkpoint(checkpoint);
  if (made) return "accepted";
  CHECK(made.error().code == code);
  return made.error().what;
}

}  // namespace

TEST_CASE("byte alphabet: every byte has its character and comes back from it") {
  std::string all;
  for (unsigned byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  std::string written, back;
  append_alphabet(all, written);
  append_alphabet_bytes(written, back);
  CHECK(back == all);
  CHECK(alphabet_character('A') == "A");
  CHECK(alphabet_character(' ') == "Ġ");
  CHECK(alphabet_character('\n') == "Ċ");
  CHECK(alphabet_character(0xAD) == "\u0143");
  CHECK(alphabet_character(0xFF) == "ÿ");
  std::string foreign;
  append_alphabet_bytes("a中\u0144\xFF", foreign);  // not of the alphabet
  CHECK(foreign == "a中\u0144\xFF");
}

TEST_CASE("bpe: merges go by rank inside words, not across them") {
  BpeBuilder builder;
  builder.merge("h", "e").merge("Ġ", "t").merge("Ġt", "he").merge("t", "he").merge("e", "Ġt");
  const Tokenizer tokenizer = builder.tokenizer();
  // 256 he, 257 Ġt, 258 Ġthe, 259 the, 260 eĠt
  CHECK(encode(tokenizer, "the the") == Ids{259, 258});
  CHECK(encode(tokenizer, "e t") == Ids{'e', 257});
}

TEST_CASE("bpe: a whole word that is a token is taken by the families that say so") {
  const auto ids = [](const char* pre) {
    BpeBuilder builder(pre);
    builder.merge("a", "b").token("abc");  // no merges lead to abc
    return encode(builder.tokenizer(), "abc");
  };
  CHECK(ids("gpt-2") == Ids{256, 'c'});
  CHECK(ids("llama-bpe") == Ids{257});
}

TEST_CASE("bpe: bytes that are no UTF-8 come back as they were") {
  BpeBuilder builder;
  builder.merge("a", "b").merge("ÿ", "ÿ");  // the second one: two bytes 0xFF
  const Tokenizer tokenizer = builder.tokenizer();
  const std::string texts[] = {"\xFF\xFF\xFF",
                               "ab\xC3",
                               "\xE2\x82"
                               "ab",
                               "é\xC3(\xA0",
                               "\xED\xA0\x80",
                               std::string("a\0b", 3)};
  for (const std::string& text : texts)
    CHECK(tokenizer.decode(encode(tokenizer, text), false) == text);
  CHECK(encode(tokenizer,
               "ab\xFF\xFF\xFF"
               "ab") == Ids{256, 257, 0xFF, 256});
}

TEST_CASE("bpe: a byte without a token is left out, the rest stays") {
  CheckpointBuilder builder;
  builder.set("model", std::string("gpt2"))
      .set("pre", std::string("gpt-2"))
      .set("tokens", std::vector<std::string>{"a", "b", ""})
      .set("merges", std::vector<std::string>{});
  CHECK(encode(load(builder.build()), "axb") == Ids{0, 1});
}

TEST_CASE("bpe: of equal texts the first token is used, empty texts match nothing") {
  BpeBuilder builder;
  builder.token("ab").token("ab").token("").token("", 4).raw_merge("a b");
  const Tokenizer tokenizer = builder.tokenizer();
  CHECK(encode(tokenizer, "ab") == Ids{256});
  CHECK(tokenizer.decode(Ids{256, 257, 258}, false) == "abab");
}

TEST_CASE("bpe: a repeated merge counts by its first place") {
  BpeBuilder builder;
  builder.merge("a", "b").merge("b", "c").raw_merge("a b");
  CHECK(encode(builder.tokenizer(), "abc") == Ids{256, 'c'});
}

TEST_CASE("bpe: broken merges are refused with number and text") {
  using Catch::Contains;
  const auto with = [](std::string_view merge) {
    BpeBuilder builder;
    builder.merge("a", "b").raw_merge(merge);
    return refusal(builder.build(), ErrorCode::format);
  };
  CHECK_THAT(with("ab"), Contains("merge 1 (ab)"));
  CHECK_THAT(with(""), Contains("merge 1"));
  CHECK_THAT(with("ab "), Contains("merge 1 (ab )"));
  CHECK_THAT(with("ab zz"), Contains("merge 1 (ab zz): zz is no token"));
  CHECK_THAT(with("zz ab"), Contains("zz is no token"));
  CHECK_THAT(with("c d"), Contains("cd is no token"));
  CHECK_THAT(with("a b c"), Contains("b c is no token"));
  CheckpointBuilder none;
  none.set("model", std::string("gpt2")).set("tokens", std::vector<std::string>{"a"});
  CHECK_THAT(refusal(none.build(), ErrorCode::format), Contains("tokenizer.ggml.merges"));
}
