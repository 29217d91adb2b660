#include "model/tokenizer/pretokenizer_patterns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

namespace millrace {

namespace {

// PCRE2 syntax, for UTF | UCP. Whether a pattern is linear on long runs matters as much as what it
// matches: see the notes at those that were rewritten.

constexpr const char* gpt2 =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";

constexpr const char* llama3 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr const char* qwen2 = R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)re"
                              R"re( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr const char* qwen35 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr const char* gpt4o =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)re"
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
    R"re(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr const char* tekken =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)re"
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

// As gpt-4o, with Han apart. "These letters and marks, but no Han" is written as the complement of
// everything else, since a look-ahead in a repeated group takes stack for every character. The
// script is named by `sc:`, for a bare \p{Han} also means the punctuation that Han text shares.
constexpr const char* kimi_k2 =
    R"re(\p{sc:Han}+|)re"
    R"re([^\r\n\p{L}\p{N}]?[^\p{sc:Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]*)re"
    R"re([^\p{sc:Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
    R"re([^\r\n\p{L}\p{N}]?[^\p{sc:Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]+)re"
    R"re([^\p{sc:Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
    R"re(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr const char* deepseek_v3_cjk =
    R"re([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)re";
constexpr const char* deepseek_v3_rest =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)re"
    R"re([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr const char* deepseek_cjk = R"re([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)re";

// Letters with case (Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee, Glagolitic, …).
constexpr const char* deepseek_llm_words =
    R"re(\s?[)re"
    R"re(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})re"
    R"re(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386})re"
    R"re(\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f})re"
    R"re(\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba})re"
    R"re(\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})re"
    R"re(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d})re"
    R"re(\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4})re"
    R"re(\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3})re"
    R"re(\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107})re"
    R"re(\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d})re"
    R"re(\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184})re"
    R"re(\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d})re"
    R"re(\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e})re"
    R"re(\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a})re"
    R"re(\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb})re"
    R"re(\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943})re"
    R"re(]+)re";
constexpr const char* deepseek_llm_signs =
    R"re(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)re";
// Stands for \s+$, which tries every suffix of a run of spaces that something follows. Line feeds
// are segments of their own by then, so \z is where $ is.
constexpr const char* trailing_spaces = R"re((?<!\s)\s++\z)re";

constexpr std::array gpt2_list = {gpt2};
constexpr std::array llama3_list = {llama3};
constexpr std::array qwen2_list = {qwen2};
constexpr std::array qwen35_list = {qwen35};
constexpr std::array gpt4o_list = {gpt4o};
constexpr std::array tekken_list = {tekken};
constexpr std::array kimi_k2_list = {kimi_k2};
constexpr std::array deepseek_v3_list = {R"re(\p{N}{1,3})re", deepseek_v3_cjk, deepseek_v3_rest};
constexpr std::array deepseek_coder_list = {R"re([\r\n])re", R"re(\s?\p{L}+)re", R"re(\s?\p{P}+)re",
                                            deepseek_cjk, R"re(\p{N})re"};
constexpr std::array deepseek_llm_list = {R"re([\r\n])re", deepseek_llm_words, deepseek_llm_signs,
                                          trailing_spaces, deepseek_cjk,       R"re(\p{N}+)re"};
constexpr std::array starcoder_list = {R"re(\p{N})re", gpt2};
constexpr std::array falcon_list = {R"re([\p{P}\$\+<=>\^~\|`]+)re", gpt2, R"re([0-9][0-9][0-9])re"};
constexpr std::array default_list = {R"re([\p{P}\$\+<=>\^~\|]+)re", gpt2, R"re(\p{N}+)re",
                                     R"re([0-9][0-9][0-9])re"};

using List = std::span<const char* const>;
constexpr PretokenizerRules plain(List patterns) noexcept { return {patterns, false, false}; }
constexpr PretokenizerRules whole_words(List patterns) noexcept { return {patterns, true, true}; }

struct Named {
  std::string_view name;
  PretokenizerRules rules;
};

constexpr Named known[] = {
    {"gpt-2", plain(gpt2_list)},
    {"phi-2", plain(gpt2_list)},
    {"olmo", plain(gpt2_list)},
    {"mpt", plain(gpt2_list)},
    {"jais", plain(gpt2_list)},
    {"exaone4", plain(gpt2_list)},
    {"gigachat", plain(gpt2_list)},
    {"a.x-4.0", plain(gpt2_list)},
    {"mellum", plain(gpt2_list)},
    {"jina-es", plain(gpt2_list)},
    {"jina-de", plain(gpt2_list)},
    {"jina-v2-es", plain(gpt2_list)},
    {"jina-v2-de", plain(gpt2_list)},
    {"jina-v1-en", plain(gpt2_list)},
    {"jina-v2-code", plain(gpt2_list)},
    {"roberta-bpe", plain(gpt2_list)},
    {"modern-bert", plain(gpt2_list)},
    {"llama-bpe", whole_words(llama3_list)},
    {"llama3", whole_words(llama3_list)},
    {"llama-v3", whole_words(llama3_list)},
    {"pixtral", whole_words(llama3_list)},
    {"falcon3", whole_words(llama3_list)},
    {"falcon-h1", whole_words(llama3_list)},
    {"midm-2.0", whole_words(llama3_list)},
    {"lfm2", whole_words(llama3_list)},
    {"glm4", plain(llama3_list)},
    {"chatglm-bpe", plain(llama3_list)},
    {"dbrx", plain(llama3_list)},
    {"smaug-bpe", plain(llama3_list)},
    {"qwen2", plain(qwen2_list)},
    {"deepseek-r1-qwen", plain(qwen2_list)},
    {"hunyuan", plain(qwen2_list)},
    {"stablelm2", plain(qwen2_list)},
    {"megrez", plain(qwen2_list)},
    {"kormo", plain(qwen2_list)},
    {"qwen35", plain(qwen35_list)},
    {"gpt-4o", plain(gpt4o_list)},
    {"llama4", plain(gpt4o_list)},
    {"kanana2", plain(gpt4o_list)},
    {"minimax-m2", plain(gpt4o_list)},
    {"tekken", whole_words(tekken_list)},
    {"kimi-k2", plain(kimi_k2_list)},
    {"deepseek-v3", plain(deepseek_v3_list)},
    {"joyai-llm", plain(deepseek_v3_list)},
    {"hunyuan-dense", plain(deepseek_v3_list)},
    {"deepseek-coder", plain(deepseek_coder_list)},
    {"deepseek-llm", plain(deepseek_llm_list)},
    {"starcoder", plain(starcoder_list)},
    {"refact", plain(starcoder_list)},
    {"smollm", plain(starcoder_list)},
    {"command-r", plain(starcoder_list)},
    {"codeshell", plain(starcoder_list)},
    {"exaone", plain(starcoder_list)},
    {"falcon", plain(falcon_list)},
    {"default", plain(default_list)},
};

}  // namespace

namespace {

// The UTF-8 of a character that is none of the first 128.
void append_character(std::uint32_t code, std::string& text) {
  const auto tail = [&](unsigned shift) {
    text += static_cast<char>(0x80 | (code >> shift & 0x3f));
  };
  if (code < 0x800) {
    text += static_cast<char>(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | code >> 12);
    tail(6);
  } else {
    text += static_cast<char>(0xf0 | (code >> 18 & 7));
    tail(12);
    tail(6);
  }
  tail(0);
}

// What different writers spell differently, spelt one way: \x{hex} as the character, line ends as
// escapes, and patterns that we rewrote as they were.
std::string usual_spelling(std::string_view pattern) {
  if (pattern == trailing_spaces) return "\\s+$";
  std::string text;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t close =
        pattern.substr(at, 3) == "\\x{" ? pattern.find('}', at) : pattern.npos;
    std::uint32_t code = 0;
    if (close != pattern.npos &&
        std::from_chars(&pattern[at + 3], &pattern[close], code, 16).ptr == &pattern[close] &&
        code >= 0x80) {
      append_character(code, text);
      at = close + 1;
      continue;
    }
    const char c = pattern[at++];
    if (c == '\r') text += "\\r";
    else if (c == '\n') text += "\\n";
    else text += c;
  }
  return text;
}

}  // namespace

std::string_view recognize_pretokenizer(std::span<const std::string> patterns) {
  const auto same = [](const std::string& given, const char* own) {
    return usual_spelling(given) == usual_spelling(own);
  };
  for (const Named& entry : known)
    if (std::equal(patterns.begin(), patterns.end(), entry.rules.patterns.begin(),
                   entry.rules.patterns.end(), same))
      return entry.name;
  return {};
}

const PretokenizerRules* find_pretokenizer(std::string_view name) noexcept {
  for (const Named& entry : known)
    if (entry.name == name) return &entry.rules;
  return nullptr;
}

std::vector<std::string_view> pretokenizer_names() {
  std::vector<std::string_view> names;
  for (const Named& entry : known) names.push_back(entry.name);
  return names;
}

}  // namespace millrace
