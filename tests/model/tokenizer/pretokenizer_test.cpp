#include "model/tokenizer/pretokenizer.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/model/tokenizer/tokenizer_world.h"

#include "runtime/base/utf8.h"

using namespace millrace;
using millrace::testing::below;

namespace {

using Parts = std::vector<std::string>;

Pretokenizer make(const PretokenizerRules& rules) {
  Result<Pretokenizer> made = Pretokenizer::create(rules);
  if (!made) FAIL(made.error().what);
  return std::move(made).value();
}

Parts split(const Pretokenizer& pretokenizer, std::string_view text) {
  Pretokenizer::Scratch scratch;
  Parts parts;
  const Status status =
      pretokenizer.split(text, scratch, [&](std::string_view part) { parts.emplace_back(part); });
  if (!status) FAIL(status.error().what);
  return parts;
}

Parts split(std::string_view name, std::string_view text) {
  const PretokenizerRules* rules = find_pretokenizer(name);
  REQUIRE(rules != nullptr);
  return split(make(*rules), text);
}

std::string joined(const Parts& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

// Letters with and without case, marks, digits, Han, Kana, Hangul, punctuation, spaces of all
// kinds, line ends, contractions.
std::string random_text(std::mt19937& random) {
  static const Parts alphabet = {
      "a",  "b",  "Z",    "Q",      "é",      "É",      "ß",      "ǅ",      "ʰ",  "я",
      "Я",  "א",  "न",    "म",      "ते",      "\u0301", "中",     "文",     "々", "、",
      "か", "カ", "한",   "1",      "23",     "٣",      "Ⅷ",      ".",      "!",  "'s",
      "'T", "'",  "$",    "€",      "😁",      "_",      "/",      "\u3000", " ",  "  ",
      "\t", "\n", "\r\n", "\u00a0", "\u2028", "\u0001", "\u200d", "‘",      "，"};
  std::string text;
  for (unsigned i = below(random, 30); i > 0; --i)
    text += alphabet[below(random, static_cast<unsigned>(alphabet.size()))];
  return text;
}

}  // namespace

TEST_CASE("pre-tokenizer: every name compiles, and its parts are the text") {
  std::mt19937 random(5);
  CHECK(pretokenizer_names().size() > 40);
  for (const std::string_view name : pretokenizer_names()) {
    INFO(name);
    const Pretokenizer pretokenizer = make(*find_pretokenizer(name));
    for (int round = 0; round < 50; ++round) {
      const std::string text = random_text(random);
      const Parts parts = split(pretokenizer, text);
      CHECK(joined(parts) == text);
      for (const std::string& part : parts) CHECK_FALSE(part.empty());
    }
  }
  CHECK(find_pretokenizer("no such name") == nullptr);
  CHECK(find_pretokenizer("") == nullptr);
}

TEST_CASE("pre-tokenizer: families cut digits, contractions and spaces in their own ways") {
  CHECK(split("gpt-2", "We'LL see 1234  x") == Parts{"We", "'", "LL", " see", " 1234", " ", " x"});
  CHECK(split("llama-bpe", "We'LL see 1234  x") ==
        Parts{"We", "'LL", " see", " ", "123", "4", " ", " x"});
  CHECK(split("glm4", "a\n\n b") == Parts{"a", "\n\n", " b"});
  CHECK(split("qwen2", "We'LL see 123!\n") ==
        Parts{"We", "'LL", " see", " ", "1", "2", "3", "!\n"});
  CHECK(split("qwen2", "e\u0301t") == Parts{"e", "\u0301t"});
  CHECK(split("qwen35", "e\u0301t") == Parts{"e\u0301t"});
  CHECK(split("gpt-4o", "iPhone's HTMLPage 1234 a/\n") ==
        Parts{"i", "Phone's", " HTMLPage", " ", "123", "4", " a", "/\n"});
  CHECK(split("tekken", "iPhone's 123") == Parts{"i", "Phone", "'s", " ", "1", "2", "3"});
  CHECK(split("kimi-k2", "Hello中文world、 12345") ==
        Parts{"Hello", "中文", "world", "、", " ", "123", "45"});
  CHECK(split("deepseek-v3", "abc1234中文かなx.Net .") ==
        Parts{"abc", "123", "4", "中文かな", "x", ".Net", " ."});
  CHECK(split("joyai-llm", "12345") == Parts{"123", "45"});
  CHECK(split("deepseek-coder", "a b\n12中") == Parts{"a", " b", "\n", "1", "2", "中"});
  CHECK(split("deepseek-llm", "Hi  there,  1234中文 \n") ==
        Parts{"Hi", " ", " there", ",", "  ", "1234", "中文", " ", "\n"});
  CHECK(split("starcoder", "ab 12 cd") == Parts{"ab", " ", "1", "2", " cd"});
  CHECK(split("falcon", "a$b 12345") == Parts{"a", "$", "b", " ", "123", "45"});
  CHECK(split("default", "a$b 12345") == Parts{"a", "$", "b", " ", "123", "45"});
}

TEST_CASE("pre-tokenizer: only the llama-bpe and tekken families take whole words and a BOS") {
  for (const std::string_view name : {"llama-bpe", "llama3", "pixtral", "falcon3", "tekken"}) {
    CHECK(find_pretokenizer(name)->ignore_merges);
    CHECK(find_pretokenizer(name)->add_bos);
  }
  for (const std::string_view name :
       {"glm4", "dbrx", "qwen2", "gpt-4o", "deepseek-v3", "default"}) {
    CHECK_FALSE(find_pretokenizer(name)->ignore_merges);
    CHECK_FALSE(find_pretokenizer(name)->add_bos);
  }
}

TEST_CASE("pre-tokenizer: patterns rewritten to be linear match what they stand for") {
  static constexpr const char* original_spaces[] = {R"re([\r\n])re", R"re(\s+$)re"};
  static constexpr const char* rewritten_spaces[] = {R"re([\r\n])re", R"re((?<!\s)\s++\z)re"};
  static constexpr const char* original_kimi[] = {
      R"re(\p{sc:Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)re"
      R"re((?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
      R"re([^\r\n\p{L}\p{N}]?(?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)re"
      R"re((?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
      R"re(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
  const std::pair<PretokenizerRules, PretokenizerRules> pairs[] = {
      {{original_spaces}, {rewritten_spaces}},
      {{original_kimi}, *find_pretokenizer("kimi-k2")},
  };
  std::mt19937 random(17);
  for (const auto& [original, rewritten] : pairs) {
    const Pretokenizer first = make(original);
    const Pretokenizer second = make(rewritten);
    for (int round = 0; round < 2000; ++round) {
      const std::string text = random_text(random);
      INFO(text);
      CHECK(split(first, text) == split(second, text));
    }
  }
}

TEST_CASE("pre-tokenizer: long runs are cut in linear time by every family") {
  // 300,000 characters: anything quadratic would take minutes.
  constexpr std::size_t count = 300'000;
  const auto run_of = [&](std::string_view unit) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += unit;
    return text;
  };
  for (const std::string_view name :
       {"gpt-2", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "kimi-k2", "deepseek-v3",
        "deepseek-coder", "deepseek-llm", "starcoder", "falcon", "default"}) {
    INFO(name);
    const Pretokenizer pretokenizer = make(*find_pretokenizer(name));
    for (const std::string_view unit : {" ", "a", "A", "Aa", "\n", " \n", "!", "1", "中", "न",
                                        "\u0301", "\u3000", "'", "\u0001"}) {
      std::string text = run_of(unit);
      Pretokenizer::Scratch scratch;
      std::size_t bytes = 0;
      const auto add = [&](std::string_view part) { bytes += part.size(); };
      CHECK(pretokenizer.split(text, scratch, add).has_value());
      text += "x中\u0001";  // the run does not end the text
      CHECK(pretokenizer.split(text, scratch, add).has_value());
      CHECK(bytes == 2 * text.size() - std::string_view("x中\u0001").size());
    }
  }
}

TEST_CASE("pre-tokenizer: a pattern that PCRE2 refuses is an error") {
  static constexpr const char* broken[] = {"(unclosed"};
  const Result<Pretokenizer> made = Pretokenizer::create({broken});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == ErrorCode::unsupported);
}

TEST_CASE("pre-tokenizer: where the JIT's stack ends the interpreter goes on") {
  // Each repetition of such a group takes stack.
  static constexpr const char* hungry[] = {R"re((?:(a)|b)+c|[ab]+)re"};
  const Pretokenizer pretokenizer = make({hungry});
  const std::string text(400'000, 'a');
  CHECK(split(pretokenizer, text) == Parts{text});
}

TEST_CASE("pre-tokenizer: empty matches cut nothing and end") {
  static constexpr const char* empty[] = {R"re(x*)re"};
  CHECK(split(make({empty}), "aéxxb") == Parts{"aé", "xx", "b"});
}
