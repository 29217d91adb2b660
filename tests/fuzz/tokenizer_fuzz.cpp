// Tokenizers on any bytes: both kinds give the text back, whole and as a stream, with and without
// special tokens, and raw text never gives a token that writes nothing.
#include <algorithm>
#include <string>
#include <string_view>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/text_stream.h"
#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace millrace::testing {

namespace {

constexpr std::string_view pieces[] = {"th", "the", "in", "ing", "  ", "    ", "'s", "12", "\n\n"};

void set(Checkpoint::Parts& parts, std::string_view key, MetaValue value) {
  parts.meta.insert_or_assign("tokenizer.ggml." + std::string(key), std::move(value));
}

void add_specials(std::vector<std::string>& tokens, std::vector<std::int64_t>& kinds) {
  kinds.resize(tokens.size(), 1);
  for (const char* text : {"<|im_end|>", "<|im", "|>"}) {
    tokens.emplace_back(text);
    kinds.push_back(3);
  }
}

Tokenizer load(Checkpoint::Parts parts) {
  parts.files = {"made-for-fuzzing.gguf"};
  Result<Tokenizer> made = Tokenizer::from_checkpoint(Checkpoint(std::move(parts)));
  MILLRACE_CHECK(made.has_value());
  return std::move(made).value();
}

Tokenizer make_bpe(std::string_view pre) {
  std::vector<std::string> tokens;
  for (unsigned byte = 0; byte < 256; ++byte)
    tokens.emplace_back(alphabet_character(static_cast<std::uint8_t>(byte)));
  std::vector<std::string> merges;
  for (const std::string_view piece : pieces) {
    std::string left;  // all but the last character
    append_alphabet(piece.substr(0, piece.size() - 1), left);
    if (std::find(tokens.begin(), tokens.end(), left) == tokens.end()) continue;
    const std::string right(alphabet_character(static_cast<std::uint8_t>(piece.back())));
    merges.push_back(left + ' ' + right);
    tokens.push_back(left + right);
  }
  std::vector<std::int64_t> kinds;
  add_specials(tokens, kinds);
  Checkpoint::Parts parts;
  set(parts, "model", std::string("gpt2"));
  set(parts, "pre", std::string(pre));
  set(parts, "tokens", tokens);
  set(parts, "token_type", kinds);
  set(parts, "merges", merges);
  return load(std::move(parts));
}

Tokenizer make_spm() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int64_t> kinds = {2, 3, 3};
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + '>');
    kinds.push_back(6);
  }
  for (const char* text : {"▁", "▁▁", "t", "h", "e", "th", "the", "▁the", "é", "中", "<|im_end|"})
    tokens.emplace_back(text);
  add_specials(tokens, kinds);
  Checkpoint::Parts parts;
  set(parts, "model", std::string("llama"));
  set(parts, "tokens", tokens);
  set(parts, "token_type", kinds);
  set(parts, "scores", std::vector<double>(tokens.size(), -1));
  return load(std::move(parts));
}

std::vector<Tokenizer> make_all() {
  std::vector<Tokenizer> made;
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "kimi-k2",
                          "deepseek-v3", "deepseek-coder", "deepseek-llm", "falcon", "default"})
    made.push_back(make_bpe(pre));
  made.push_back(make_spm());
  return made;
}

void check(const Tokenizer& tokenizer, std::string_view text) {
  const bool spm = tokenizer.model_name() == "llama";
  for (const bool special : {false, true}) {
    const Result<std::vector<TokenId>> ids =
        tokenizer.encode(text, {.parse_special = special, .add_bos_eos = false});
    MILLRACE_CHECK(ids.has_value());
    bool any_special = false;
    for (const TokenId id : *ids) any_special |= tokenizer.token_bytes(id, false).empty();
    MILLRACE_CHECK(special || !any_special);

    const std::string decoded = tokenizer.decode(*ids, true);
    // SPM writes a space for '▁' and adds one behind special tokens.
    const bool comparable = !spm || (text.find("▁") == std::string_view::npos && !any_special);
    if (comparable) MILLRACE_CHECK(decoded == text);
    TextStream stream(tokenizer, {.show_special = true, .at_start = true});
    std::string streamed;
    for (const TokenId id : *ids) streamed += stream.push(id);
    streamed += stream.flush();
    MILLRACE_CHECK(streamed == utf8_replace_invalid(decoded));
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {
      "The thing's in there, 12345 times.\n\n  Then: nothing!",
      "<|im_start|>user\nhi<|im_end|>\n<|im|><|im_end|",
      "中文かなカナ한국어 été ΑΒγ नमस्ते สวัสดี 😁👍🏽 "
      "\u200d\u3000\u2028\u00a0",
      "▁the▁ the\t\r\n\r\n   \xFF\xC3\xE2\x82\xF0\x9F",
      std::string(300, ' ') + "x" + std::string(300, 'a') + std::string(50, '\n'),
      std::string("\0\1\x7F", 3) + "<0x0A><s></s><unk>'LL'S'\u017F"};
}

std::uint64_t fuzz_rounds() { return 3000; }

}  // namespace millrace::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<millrace::Tokenizer> tokenizers = millrace::testing::make_all();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const millrace::Tokenizer& tokenizer : tokenizers) millrace::testing::check(tokenizer, text);
  return 0;
}
