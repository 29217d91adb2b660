#include "model/tokenizer/tokenizer.h"

#include <catch2/catch.hpp>
#include <limits>
#include <thread>

#include "model/format/gguf.h"
#include "runtime/base/limits.h"
#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;
using Catch::Contains;

namespace {

using Ids = std::vector<TokenId>;

std::string refusal(const Checkpoint& checkpoint, ErrorCode code) {
  const Result<Tokenizer> made = Tokenizer::from_checkpoint(checkpoint);
  if (made) return "accepted";
  CHECK(made.error().code == code);
  CHECK_THAT(made.error().what, Contains("made-by-a-test.gguf"));
  return made.error().what;
}

CheckpointBuilder letters() {
  CheckpointBuilder builder;
  builder.set("model", std::string("gpt2"))
      .set("pre", std::string("gpt-2"))
      .set("tokens", std::vector<std::string>{"a", "b", "c"})
      .set("merges", std::vector<std::string>{});
  return builder;
}

}  // namespace

TEST_CASE("tokenizer: a file without one, or of an unknown kind, is refused by name") {
  CHECK_THAT(refusal(CheckpointBuilder().build(), ErrorCode::format),
             Contains("tokenizer.ggml.model is missing"));
  for (const char* model : {"bert", "t5", "rwkv", "plamo2", "none", "no-such"})
    CHECK_THAT(refusal(letters().set("model", std::string(model)).build(), ErrorCode::unsupported),
               Contains(model));
  CheckpointBuilder no_tokens;
  no_tokens.set("model", std::string("gpt2"));
  CHECK_THAT(refusal(no_tokens.build(), ErrorCode::format), Contains("tokenizer.ggml.tokens"));
  CHECK_THAT(
      refusal(letters().set("tokens", std::vector<std::string>{}).build(), ErrorCode::format),
      Contains("tokenizer.ggml.tokens"));
  CHECK_THAT(refusal(letters().set("tokens", std::string("abc")).build(), ErrorCode::format),
             Contains("tokenizer.ggml.tokens"));
}

TEST_CASE("tokenizer: arrays of another length or with impossible values are refused") {
  const auto with = [](const char* key, MetaValue value) {
    return refusal(letters().set(key, std::move(value)).build(), ErrorCode::format);
  };
  CHECK_THAT(with("token_type", std::vector<std::int64_t>{1, 1}), Contains("2 entries for 3"));
  CHECK_THAT(with("token_type", std::vector<std::int64_t>{1, 7, 1}), Contains("token 1"));
  CHECK_THAT(with("token_type", std::vector<std::int64_t>{1, -1, 1}), Contains("token 1"));
  CHECK_THAT(with("scores", std::vector<double>{1, 1, 1, 1}), Contains("4 entries for 3"));
  CHECK_THAT(with("scores", std::vector<double>{1, 1, std::numeric_limits<double>::quiet_NaN()}),
             Contains("token 2"));
  CHECK_THAT(with("token_type", std::string("x")), Contains("token_type"));
  CHECK_THAT(with("bos_token_id", std::string("x")), Contains("bos_token_id"));
  CHECK_THAT(with("add_bos_token", std::string("x")), Contains("add_bos_token"));
  CHECK_THAT(with("model", std::uint64_t{3}), Contains("tokenizer.ggml.model"));
  CHECK(Tokenizer::from_checkpoint(
            letters().set("token_type", std::vector<std::int64_t>{0, 1, 1}).build())
            .has_value());  // 0: undefined
}

TEST_CASE("tokenizer: an unknown pre-tokenizer falls back to the default rules") {
  const Tokenizer unknown = BpeBuilder("from-the-future").tokenizer();
  const Tokenizer standard = BpeBuilder("default").tokenizer();
  const std::string text = "a$b 12345 It's";
  CHECK(encode(unknown, text) == encode(standard, text));
  CHECK(unknown.pretokenizer_name() == "from-the-future");
}

TEST_CASE("tokenizer: a text that is too long is refused, the longest is not") {
  const Tokenizer tokenizer = load(letters().build());
  const Result<Ids> ids =
      tokenizer.encode(std::string(limits::text_bytes_max + 1, 'a'), EncodeOptions{});
  REQUIRE_FALSE(ids.has_value());
  CHECK(ids.error().code == ErrorCode::usage);
}

TEST_CASE("tokenizer: ids out of range write nothing and have no role") {
  const Tokenizer tokenizer = load(letters().build());
  for (const TokenId id : {-1, 3, std::numeric_limits<TokenId>::max()}) {
    CHECK_FALSE(tokenizer.contains(id));
    CHECK(tokenizer.token_bytes(id, true).empty());
    CHECK_FALSE(tokenizer.is_control(id));
    CHECK_FALSE(tokenizer.is_end_of_generation(id));
  }
  CHECK(tokenizer.decode(Ids{-5, 0, 99, 1}, false) == "ab");
  CHECK(tokenizer.find_token("b") == TokenId{1});
  CHECK_FALSE(tokenizer.find_token("x").has_value());
}

TEST_CASE("tokenizer: long runs of one character are no trouble") {
  BpeBuilder builder("qwen2");
  std::string spaces = "Ġ", small = "a";
  for (int i = 0; i < 5; ++i) {
    builder.merge(spaces, spaces).merge(small, small);
    spaces += spaces;
    small += small;
  }
  const Tokenizer tokenizer = builder.tokenizer();
  const std::size_t count = std::size_t{1} << 20;
  CHECK(encode(tokenizer, std::string(count, ' ')).size() == count / 32);
  CHECK(encode(tokenizer, std::string(count, 'a')).size() == count / 32);
  CHECK(encode(tokenizer, std::string(count, '\n')).size() == count);
  CHECK(encode(tokenizer, std::string(count, '\xFF')).size() == count);
}

TEST_CASE("tokenizer: many tokens of one start do not slow the search for them") {
  BpeBuilder builder;
  for (int i = 0; i < 800; ++i) builder.token("<|reserved_" + std::to_string(i) + "|>", 3);
  for (std::size_t i = 2; i < 32; ++i) builder.token(std::string(i, ' '), 4);
  const Tokenizer tokenizer = builder.tokenizer();
  const std::size_t count = std::size_t{1} << 20;
  const EncodeOptions options = {.parse_special = true, .add_bos_eos = false};
  CHECK(encode(tokenizer, std::string(count, ' '), options).size() == count / 31 + 1);
  CHECK(encode(tokenizer, std::string(count, '<'), options).size() == count);
}

TEST_CASE("tokenizer: threads may encode with one tokenizer at once") {
  BpeBuilder builder("qwen2");
  builder.merge("h", "e").merge("Ġ", "t").merge("Ġt", "he");
  const Tokenizer tokenizer = builder.tokenizer();
  const std::string text = "the the 123 \n the; he's there";
  const Ids wanted = encode(tokenizer, text);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&tokenizer, &text, &wanted, &count] {
      for (int i = 0; i < 200; ++i) {
        const Result<Ids> ids = tokenizer.encode(text, EncodeOptions{});
        count += ids.has_value() && ids.value() == wanted ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("tokenizer: the embedded model's tokenizer reads from its file") {
  const Result<Checkpoint> checkpoint = open_gguf(MILLRACE_EMBEDDED_MODEL);
  REQUIRE(checkpoint.has_value());
  const Tokenizer tokenizer = load(checkpoint.value());
  CHECK(tokenizer.token_count() == 4096);
  CHECK(tokenizer.bos() == TokenId{4093});
  CHECK(tokenizer.eos() == TokenId{4093});
  const auto ends = tokenizer.end_of_generation();
  CHECK(Ids(ends.begin(), ends.end()) == Ids{4093, 4095});
  const std::string chat = "<|im_start|>user\nTell me a story.<|im_end|>\n";
  const Ids ids = encode(tokenizer, chat, {.parse_special = true, .add_bos_eos = true});
  CHECK(ids.front() == 4094);  // no BOS is added
  CHECK(tokenizer.decode(ids, true) == chat);
  CHECK(tokenizer.decode(ids, false) == "user\nTell me a story.\n");
}
