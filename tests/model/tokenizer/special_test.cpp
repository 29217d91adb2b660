#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "model/tokenizer/special_splitter.h"
#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

using Ids = std::vector<TokenId>;
constexpr EncodeOptions parsed = {.parse_special = true, .add_bos_eos = false};

// The definition: token after token, longest first, in every raw part.
std::vector<Fragment> split_slowly(const Vocabulary& vocabulary, std::string_view text) {
  Ids order;
  for (TokenId id = 0; vocabulary.contains(id); ++id)
    if (vocabulary.kind(id) == TokenKind::control) order.push_back(id);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return vocabulary.text(a).size() > vocabulary.text(b).size();
  });
  std::vector<Fragment> fragments{{text, no_token}};
  for (const TokenId id : order) {
    const std::string_view wanted = vocabulary.text(id);
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      if (fragments[i].token != no_token) continue;
      const std::string_view raw = fragments[i].raw;
      const std::size_t at = raw.find(wanted);
      if (at == std::string_view::npos) continue;
      const std::vector<Fragment> parts = {
          {raw.substr(0, at), no_token}, {{}, id}, {raw.substr(at + wanted.size()), no_token}};
      fragments.erase(fragments.begin() + static_cast<std::ptrdiff_t>(i));
      fragments.insert(fragments.begin() + static_cast<std::ptrdiff_t>(i), parts.begin(),
                       parts.end());
    }
  }
  std::erase_if(fragments, [](const Fragment& f) { return f.token == no_token && f.raw.empty(); });
  return fragments;
}

}  // namespace

TEST_CASE("special tokens: found by longest text first, like the definition on random texts") {
  std::mt19937 random(3);
  const auto word = [&](unsigned longest) {
    std::string text;
    for (unsigned i = 1 + below(random, longest); i > 0; --i) text += "<|a>"[below(random, 4)];
    return text;
  };
  for (int round = 0; round < 400; ++round) {
    CheckpointBuilder builder;
    std::vector<std::string> tokens = {"never"};
    for (unsigned i = below(random, 12); i > 0; --i) tokens.push_back(word(5));
    builder.set("tokens", tokens).set("token_type", std::vector<std::int64_t>(tokens.size(), 3));
    const Result<Vocabulary> vocabulary = Vocabulary::from_checkpoint(builder.build());
    REQUIRE(vocabulary.has_value());
    const std::string text = word(40);
    const std::vector<Fragment> fragments = SpecialSplitter(vocabulary.value()).split(text, true);
    const std::vector<Fragment> wanted = split_slowly(vocabulary.value(), text);
    INFO(text);
    REQUIRE(fragments.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      CHECK(fragments[i].raw == wanted[i].raw);
      // Equal texts: the first token stands for all.
      CHECK(fragments[i].token == wanted[i].token);
    }
  }
}

TEST_CASE("special tokens: control texts in raw text are text, user-defined ones always tokens") {
  BpeBuilder builder;
  builder.token("<|x|>", 3).token("<tool>", 4).token("<unk>", 2);
  const Tokenizer tokenizer = builder.tokenizer();
  CHECK(encode(tokenizer, "<|x|>").size() == 5);
  CHECK(encode(tokenizer, "<unk>").size() == 5);
  CHECK(encode(tokenizer, "<tool>") == Ids{257});
  CHECK(encode(tokenizer, "a<|x|><tool><unk>", parsed) == Ids{'a', 256, 257, 258});
}

TEST_CASE("special tokens: a control token never comes out of whole-word matching") {
  BpeBuilder builder("llama-bpe");
  builder.token("assistant", 3).token("user", 1);
  const Tokenizer tokenizer = builder.tokenizer();
  CHECK(encode(tokenizer, "user") == Ids{257});
  CHECK(encode(tokenizer, "assistant").size() == 9);
  CHECK(encode(tokenizer, "assistant", parsed) == Ids{256});
}

TEST_CASE("special tokens: BOS and EOS are added where the file asks and the caller wants it") {
  const auto with = [](const char* pre, auto change) {
    BpeBuilder builder(pre);
    builder.token("<b>", 3).token("<e>", 3);
    builder.set("bos_token_id", std::uint64_t{256}).set("eos_token_id", std::uint64_t{257});
    change(builder);
    return encode(builder.tokenizer(), "x", {.parse_special = false, .add_bos_eos = true});
  };
  const auto nothing = [](BpeBuilder&) {};
  const auto both = [](BpeBuilder& b) { b.set("add_bos_token", true).set("add_eos_token", true); };
  const auto neither = [](BpeBuilder& b) { b.set("add_bos_token", false); };
  CHECK(with("gpt-2", nothing) == Ids{'x'});
  CHECK(with("llama-bpe", nothing) == Ids{256, 'x'});
  CHECK(with("llama-bpe", neither) == Ids{'x'});
  CHECK(with("gpt-2", both) == Ids{256, 'x', 257});
}

TEST_CASE("special tokens: ids that are out of range are refused, naming the key") {
  for (const char* key : {"bos_token_id", "eos_token_id", "padding_token_id", "eot_token_id"}) {
    BpeBuilder builder;
    builder.set(key, std::uint64_t{256});
    const auto made = Tokenizer::from_checkpoint(builder.build());
    REQUIRE_FALSE(made);
    CHECK(made.error().code == ErrorCode::format);
    CHECK_THAT(made.error().what, Catch::Contains(std::string("tokenizer.ggml.") + key));
    CHECK_THAT(made.error().what, Catch::Contains("256"));
  }
}

TEST_CASE("special tokens: an id of -1 means none, and nothing is added for it") {
  BpeBuilder builder;
  builder.set("bos_token_id", std::uint64_t{0xFFFFFFFF})
      .set("eos_token_id", std::uint64_t{0xFFFFFFFF})
      .set("add_bos_token", true);
  const Tokenizer tokenizer = builder.tokenizer();
  CHECK_FALSE(tokenizer.bos().has_value());
  CHECK_FALSE(tokenizer.eos().has_value());
  CHECK(encode(tokenizer, "x", {.parse_special = true, .add_bos_eos = true}) == Ids{'x'});
}

TEST_CASE("special tokens: id 11 is the default only where it is a control token") {
  CHECK_FALSE(BpeBuilder().tokenizer().eos().has_value());
  BpeBuilder builder;
  Checkpoint::Parts parts;
  CheckpointBuilder falcon;
  std::vector<std::string> tokens(12);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = std::string(1, static_cast<char>('a' + i));
  std::vector<std::int64_t> kinds(12, 1);
  kinds[11] = 3;
  falcon.set("model", std::string("gpt2"))
      .set("pre", std::string("falcon"))
      .set("tokens", tokens)
      .set("token_type", kinds)
      .set("merges", std::vector<std::string>{});
  CHECK(load(falcon.build()).eos() == TokenId{11});
}

TEST_CASE("special tokens: generation ends at eos, eot, eom, infill pads and well-known texts") {
  BpeBuilder builder;
  builder
      .token("<own-eos>", 3)       // 256, by key
      .token("<own-eot>", 3)       // 257, by key
      .token("<own-eom>", 3)       // 258, by key
      .token("<|im_end|>", 1)      // 259, by text, whatever its type
      .token("<|file_sep|>", 4)    // 260, infill
      .token("<|fim_prefix|>", 4)  // 261, infill, but no end
      .token("<|end|>", 3)         // 262
      .token("<|return|>", 3);     // 263
  builder.set("eos_token_id", std::uint64_t{256})
      .set("eot_token_id", std::uint64_t{257})
      .set("eom_token_id", std::uint64_t{258});
  const Tokenizer tokenizer = builder.tokenizer();
  const auto ends = tokenizer.end_of_generation();
  CHECK(Ids(ends.begin(), ends.end()) == Ids{256, 257, 258, 259, 260, 262, 263});
  CHECK(tokenizer.is_control(259));
  CHECK(tokenizer.is_control(260));
  CHECK(tokenizer.is_control(261));
  CHECK(tokenizer.is_end_of_generation(259));
  CHECK_FALSE(tokenizer.is_end_of_generation(261));
  CHECK_FALSE(tokenizer.is_end_of_generation(-1));
  CHECK(encode(tokenizer, "<|im_end|>").size() == 10);  // raw text cannot end a turn
  CHECK(encode(tokenizer, "<|im_end|>", parsed) == Ids{259});

  builder.token("<|call|>", 3);  // with it this is gpt-oss, where <|end|> ends a message only
  const Tokenizer harmony = builder.tokenizer();
  CHECK_FALSE(harmony.is_end_of_generation(262));
  CHECK(harmony.is_end_of_generation(263));
  CHECK(harmony.is_end_of_generation(264));
}
