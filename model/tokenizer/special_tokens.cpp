#include "model/tokenizer/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/log.h"

namespace millrace {

namespace {

using Texts = std::span<const std::string_view>;

constexpr std::string_view end_of_turn_texts[] = {
    "<|eot_id|>",      "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",
    "<|end_of_text|>", "<EOT>",      "_<EOT>",  "<｜end▁of▁sentence｜>", "<end_of_utterance>"};
constexpr std::string_view end_of_message_texts[] = {"<|eom_id|>"};
constexpr std::string_view end_of_generation_texts[] = {"<|eot_id|>",
                                                        "<|im_end|>",
                                                        "<|end|>",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<|flush|>",
                                                        "<|calls|>",
                                                        "<end_of_turn>",
                                                        "<|endoftext|>",
                                                        "</s>",
                                                        "<|eom_id|>",
                                                        "<EOT>",
                                                        "_<EOT>",
                                                        "[EOT]",
                                                        "[EOS]",
                                                        "<eos>",
                                                        "<|end_of_text|>",
                                                        "<turn|>",
                                                        "<end_of_utterance>",
                                                        "<｜end▁of▁sentence｜>"};

constexpr std::string_view fim_prefix_texts[] = {"<|fim_prefix|>",  "<fim-prefix>", "<fim_prefix>",
                                                 "<｜fim▁begin｜>", "<PRE>",        "▁<PRE>",
                                                 "<|code_prefix|>"};
constexpr std::string_view fim_suffix_texts[] = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",
                                                 "<｜fim▁hole｜>", "<SUF>",        "▁<SUF>",
                                                 "<|code_suffix|>"};
constexpr std::string_view fim_middle_texts[] = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",
                                                 "<｜fim▁end｜>",  "<MID>",        "▁<MID>",
                                                 "<|code_middle|>"};
constexpr std::string_view fim_pad_texts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"};
constexpr std::string_view fim_repository_texts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
                                                     "<REPO>", "<reponame>"};
constexpr std::string_view fim_separator_texts[] = {"<|file_sep|>"};

// gpt-oss: `<|end|>` only ends a message of a turn, where the turn ends by these two.
constexpr std::string_view harmony_return = "<|return|>";
constexpr std::string_view harmony_call = "<|call|>";
constexpr std::string_view harmony_end = "<|end|>";

constexpr std::uint32_t id_of_none = 0xFFFFFFFF;

class SpecialReader {
 public:
  SpecialReader(const Checkpoint& checkpoint, Vocabulary& vocabulary)
      : checkpoint_(checkpoint), vocabulary_(vocabulary) {}

  // The id that `key` names, or the default where there is no key. -1 as unsigned means none, as
  // some published files have it.
  Status by_key(const char* key, TokenId fallback, std::optional<TokenId>& out) {
    const std::string full = std::string("tokenizer.ggml.") + key;
    std::uint32_t id = 0;
    MILLRACE_ASSIGN(const bool present, checkpoint_.has_u32(full, id));
    if (!present) {
      if (vocabulary_.contains(fallback)) out = fallback;
    } else if (id < vocabulary_.size()) {
      out = static_cast<TokenId>(id);
    } else if (id != id_of_none) {
      return Error{ErrorCode::format,
                   fmt::format("{}: metadata key {}: token {}, but there are {}",
                               checkpoint_.display_path(), full, id, vocabulary_.size())};
    }
    return {};
  }

  // The id that `key` names, or the first of `texts` that is a token, made a control token.
  Status by_key_or_text(const char* key, Texts texts, std::optional<TokenId>& out) {
    MILLRACE_TRY(by_key(key, no_token, out));
    for (const std::string_view text : texts) {
      const TokenId id = vocabulary_.find(text);
      if (id == no_token || out.has_value()) continue;
      out = id;
      make_control(id);
    }
    return {};
  }

  void make_control(TokenId id) {
    if (vocabulary_.kind(id) == TokenKind::control) return;
    log_debug(fmt::format("token {} ({}) is taken as a control token", id,
                          printable(vocabulary_.text(id))));
    vocabulary_.set_kind(id, TokenKind::control);
  }

  // "Add" flags hold only with a token to add.
  Status flag(const char* key, bool fallback, const std::optional<TokenId>& token, bool& out) {
    const std::string full = std::string("tokenizer.ggml.") + key;
    MILLRACE_ASSIGN(const bool present, checkpoint_.has_bool(full, out));
    if (!present) out = fallback;
    if (present && out && !token.has_value())
      log_warning(fmt::format("{}: {} is set, but the file names no such token: ignored",
                              checkpoint_.display_path(), full));
    out = out && token.has_value();
    return {};
  }

 private:
  const Checkpoint& checkpoint_;
  Vocabulary& vocabulary_;
};

void collect_ends(SpecialReader& reader, const Vocabulary& vocabulary, SpecialTokens& special) {
  std::vector<TokenId>& ends = special.end_of_generation;
  for (const std::string_view text : end_of_generation_texts) {
    const TokenId id = vocabulary.find(text);
    if (id == no_token) continue;
    reader.make_control(id);
    ends.push_back(id);
  }
  for (const auto& id : {special.eos, special.end_of_turn, special.end_of_message, special.fim_pad,
                         special.fim_repository, special.fim_separator})
    if (id.has_value()) ends.push_back(*id);
  if (vocabulary.find(harmony_return) != no_token && vocabulary.find(harmony_call) != no_token)
    std::erase(ends, vocabulary.find(harmony_end));
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

}  // namespace

Result<SpecialTokens> read_special_tokens(const Checkpoint& checkpoint,
                                          const SpecialDefaults& defaults, Vocabulary& vocabulary) {
  SpecialReader reader(checkpoint, vocabulary);
  SpecialTokens made;
  MILLRACE_TRY(reader.by_key("bos_token_id", defaults.bos, made.bos));
  MILLRACE_TRY(reader.by_key("eos_token_id", defaults.eos, made.eos));
  MILLRACE_TRY(reader.by_key("unknown_token_id", defaults.unknown, made.unknown));
  MILLRACE_TRY(reader.by_key("padding_token_id", no_token, made.padding));
  MILLRACE_TRY(reader.by_key_or_text("eot_token_id", end_of_turn_texts, made.end_of_turn));
  MILLRACE_TRY(reader.by_key_or_text("eom_token_id", end_of_message_texts, made.end_of_message));
  MILLRACE_TRY(reader.by_key_or_text("fim_pre_token_id", fim_prefix_texts, made.fim_prefix));
  MILLRACE_TRY(reader.by_key_or_text("fim_suf_token_id", fim_suffix_texts, made.fim_suffix));
  MILLRACE_TRY(reader.by_key_or_text("fim_mid_token_id", fim_middle_texts, made.fim_middle));
  MILLRACE_TRY(reader.by_key_or_text("fim_pad_token_id", fim_pad_texts, made.fim_pad));
  MILLRACE_TRY(
      reader.by_key_or_text("fim_rep_token_id", fim_repository_texts, made.fim_repository));
  MILLRACE_TRY(reader.by_key_or_text("fim_sep_token_id", fim_separator_texts, made.fim_separator));
  MILLRACE_TRY(reader.flag("add_bos_token", defaults.add_bos, made.bos, made.add_bos));
  MILLRACE_TRY(reader.flag("add_eos_token", defaults.add_eos, made.eos, made.add_eos));
  collect_ends(reader, vocabulary, made);
  return made;
}

}  // namespace millrace
