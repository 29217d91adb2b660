#include "model/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/nfc.h"
#include "model/tokenizer/pretokenizer_patterns.h"
#include "model/tokenizer/spm.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr const char* model_key = "tokenizer.ggml.model";
constexpr const char* pre_key = "tokenizer.ggml.pre";
constexpr const char* nfc_key = "tokenizer.ggml.normalizer_nfc";     // of tokenizer.json
constexpr const char* patterns_key = "tokenizer.ggml.pre_patterns";  // of tokenizer.json

// The rules for the name in the file, or those for files without a name, loudly.
const PretokenizerRules& choose_rules(const Checkpoint& checkpoint, const std::string& name) {
  if (const PretokenizerRules* rules = find_pretokenizer(name)) return *rules;
  log_warning(fmt::format(
      "{}: {}; text is cut into words by the default rules, which may be WRONG for this model and "
      "make its answers worse",
      checkpoint.display_path(),
      name.empty() ? fmt::format("{} is missing", pre_key)
                   : fmt::format("{} \"{}\" is unknown", pre_key, printable(name))));
  const PretokenizerRules* fallback = find_pretokenizer("default");
  MILLRACE_CHECK(fallback != nullptr);
  return *fallback;
}

}  // namespace

Result<Tokenizer> Tokenizer::from_checkpoint(const Checkpoint& checkpoint) {
  Tokenizer made;
  MILLRACE_TRY(made.load(checkpoint));
  return made;
}

Status Tokenizer::load(const Checkpoint& checkpoint) {
  MILLRACE_ASSIGN(const bool named, checkpoint.has_string(model_key, model_name_));
  if (!named)
    return Error{
        ErrorCode::format,
        fmt::format("{}: no tokenizer: {} is missing", checkpoint.display_path(),
                    checkpoint.companions().empty() ? model_key : "tokenizer.json beside it")};
  if (model_name_ != "gpt2" && model_name_ != "llama")
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: {} is \"{}\"; only \"gpt2\" (byte-level BPE) and \"llama\" (SPM) "
                             "are supported",
                             checkpoint.display_path(), model_key, printable(model_name_))};
  MILLRACE_TRY(checkpoint.has_string(pre_key, pretokenizer_name_));
  MILLRACE_TRY(checkpoint.has_bool(nfc_key, nfc_));
  MILLRACE_ASSIGN(Vocabulary vocabulary, Vocabulary::from_checkpoint(checkpoint));
  vocabulary_ = std::make_unique<Vocabulary>(std::move(vocabulary));
  if (model_name_ == "gpt2") MILLRACE_TRY(load_bpe(checkpoint));
  else MILLRACE_TRY(load_spm(checkpoint));
  splitter_ = std::make_unique<SpecialSplitter>(*vocabulary_);
  return {};
}

// Checkpoints without a name for their rules have the patterns themselves.
Status Tokenizer::recognize_patterns(const Checkpoint& checkpoint) {
  const std::vector<std::string>* patterns = checkpoint.string_array(patterns_key);
  if (patterns == nullptr) return {};
  pretokenizer_name_ = recognize_pretokenizer(*patterns);
  if (!pretokenizer_name_.empty()) return {};
  std::string all;
  for (const std::string& pattern : *patterns)
    all += (all.empty() ? "" : "; ") + printable(pattern);
  return Error{ErrorCode::unsupported,
               fmt::format("{}: the patterns of the pre-tokenizer are not known: {}",
                           checkpoint.display_path(), all)};
}

Status Tokenizer::load_bpe(const Checkpoint& checkpoint) {
  MILLRACE_TRY(recognize_patterns(checkpoint));
  PretokenizerRules rules = choose_rules(checkpoint, pretokenizer_name_);
  MILLRACE_TRY(checkpoint.has_bool("tokenizer.ggml.ignore_merges", rules.ignore_merges));
  SpecialDefaults defaults;
  defaults.add_bos = rules.add_bos;
  // Files of Falcon's time leave these keys out and mean 11. Where 11 is an ordinary token, there
  // is none.
  constexpr TokenId old_default = 11;
  if (vocabulary_->contains(old_default) && vocabulary_->kind(old_default) == TokenKind::control)
    defaults.bos = defaults.eos = old_default;
  MILLRACE_ASSIGN(special_, read_special_tokens(checkpoint, defaults, *vocabulary_));
  // The file's word on this counts for SPM; no byte-level vocabulary was trained with it.
  space_prefix_ = false;
  MILLRACE_ASSIGN(encoder_, BpeEncoder::create(checkpoint, *vocabulary_, rules));
  bytes_ = std::make_unique<TokenBytes>(*vocabulary_, TokenTextStyle::byte_alphabet);
  return {};
}

Status Tokenizer::load_spm(const Checkpoint& checkpoint) {
  SpecialDefaults defaults;
  defaults.bos = 1;
  defaults.eos = 2;
  defaults.unknown = 0;
  defaults.add_bos = true;
  MILLRACE_ASSIGN(special_, read_special_tokens(checkpoint, defaults, *vocabulary_));
  space_prefix_ = true;
  MILLRACE_TRY(checkpoint.has_bool("tokenizer.ggml.add_space_prefix", space_prefix_));
  encoder_ = std::make_unique<SpmEncoder>(*vocabulary_, special_.unknown.value_or(no_token),
                                          space_prefix_);
  bytes_ = std::make_unique<TokenBytes>(*vocabulary_, TokenTextStyle::spm);
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > limits::text_bytes_max)
    return Error{ErrorCode::usage, fmt::format("a text of {} bytes is too long, at most {} are "
                                               "tokenized at once",
                                               text.size(), limits::text_bytes_max)};
  std::vector<TokenId> ids;
  const bool add_bos = options.add_bos_eos && special_.add_bos;
  if (add_bos) ids.push_back(*special_.bos);
  std::vector<Fragment> fragments =
      splitter_->split(text, options.parse_special, options.never_special);
  // Behind the splitting, so that special tokens are found as they are.
  std::deque<std::string> normal;
  for (Fragment& fragment : fragments)
    if (nfc_ && fragment.token == no_token && may_change_by_nfc(fragment.raw))
      fragment.raw = normal.emplace_back(to_nfc(fragment.raw));
  MILLRACE_TRY(encoder_->encode(fragments, ids));
  if (add_bos && ids.size() > 1 && ids[1] == *special_.bos)
    log_warning(
        "the text begins with the BOS token and the model adds one, so there are two; leave it out "
        "of the text");
  if (options.add_bos_eos && special_.add_eos) ids.push_back(*special_.eos);
  return ids;
}

std::string_view Tokenizer::token_bytes(TokenId id, bool show_special) const noexcept {
  if (!contains(id)) return {};
  const TokenKind kind = vocabulary_->kind(id);
  if (show_special && (kind == TokenKind::control || kind == TokenKind::unknown))
    return vocabulary_->text(id);
  return bytes_->of(id);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool show_special) const {
  std::string text;
  bool at_start = space_prefix_;
  for (const TokenId id : ids) {
    std::string_view bytes = token_bytes(id, show_special);
    if (at_start && !bytes.empty()) {
      at_start = false;
      if (bytes.front() == ' ') bytes.remove_prefix(1);
    }
    text += bytes;
  }
  return text;
}

std::optional<TokenId> Tokenizer::find_token(std::string_view text) const noexcept {
  const TokenId id = vocabulary_->find(text);
  return id == no_token ? std::nullopt : std::optional<TokenId>(id);
}

bool Tokenizer::is_control(TokenId id) const noexcept {
  return contains(id) && vocabulary_->kind(id) == TokenKind::control;
}

bool Tokenizer::is_end_of_generation(TokenId id) const noexcept {
  return std::binary_search(special_.end_of_generation.begin(), special_.end_of_generation.end(),
                            id);
}

}  // namespace millrace
