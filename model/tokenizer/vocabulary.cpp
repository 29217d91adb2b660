#include "model/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/base/hash.h"
#include "runtime/base/limits.h"

namespace millrace {

namespace {

constexpr const char* tokens_key = "tokenizer.ggml.tokens";
constexpr const char* kinds_key = "tokenizer.ggml.token_type";
constexpr const char* scores_key = "tokenizer.ggml.scores";

Error format_error(const Checkpoint& checkpoint, const std::string& what) {
  return {ErrorCode::format, fmt::format("{}: {}", checkpoint.display_path(), what)};
}

std::uint32_t hash_of(std::string_view text) noexcept {
  return static_cast<std::uint32_t>(hash64(text.data(), text.size()));
}

}  // namespace

Result<Vocabulary> Vocabulary::from_checkpoint(const Checkpoint& checkpoint) {
  Vocabulary made;
  MILLRACE_TRY(made.store_texts(checkpoint));
  MILLRACE_TRY(made.store_kinds(checkpoint));
  MILLRACE_TRY(made.store_scores(checkpoint));
  made.build_index();
  return made;
}

Status Vocabulary::store_texts(const Checkpoint& checkpoint) {
  const std::vector<std::string>* tokens = checkpoint.string_array(tokens_key);
  if (tokens == nullptr || tokens->empty())
    return format_error(
        checkpoint,
        fmt::format("no tokenizer: {} is missing, empty or no string array", tokens_key));
  if (tokens->size() > limits::vocabulary_max)
    return format_error(checkpoint,
                        fmt::format("{} has {} tokens, at most {} are supported", tokens_key,
                                    tokens->size(), limits::vocabulary_max));
  std::size_t bytes = 0;
  for (const std::string& token : *tokens) bytes += token.size();
  if (bytes > std::numeric_limits<std::uint32_t>::max())
    return format_error(checkpoint, fmt::format("{} holds {} bytes of text", tokens_key, bytes));

  texts_.reserve(bytes);
  starts_.reserve(tokens->size() + 1);
  for (const std::string& token : *tokens) {
    starts_.push_back(static_cast<std::uint32_t>(texts_.size()));
    texts_ += token;
    longest_text_bytes_ = std::max(longest_text_bytes_, token.size());
  }
  starts_.push_back(static_cast<std::uint32_t>(texts_.size()));
  kinds_.assign(tokens->size(), TokenKind::normal);
  return {};
}

Status Vocabulary::store_kinds(const Checkpoint& checkpoint) {
  std::vector<std::int32_t> kinds;
  MILLRACE_ASSIGN(const bool present, checkpoint.has_i32_array(kinds_key, kinds));
  if (!present) return {};
  if (kinds.size() != size())
    return format_error(checkpoint, fmt::format("{} has {} entries for {} tokens", kinds_key,
                                                kinds.size(), size()));
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    // 0 stands for "undefined" in files of old converters.
    if (kinds[i] < 0 || kinds[i] > static_cast<std::int32_t>(TokenKind::byte))
      return format_error(
          checkpoint, fmt::format("{}: token {} has the unknown type {}", kinds_key, i, kinds[i]));
    if (kinds[i] != 0) kinds_[i] = static_cast<TokenKind>(kinds[i]);
  }
  return {};
}

Status Vocabulary::store_scores(const Checkpoint& checkpoint) {
  MILLRACE_ASSIGN(const bool present, checkpoint.has_f32_array(scores_key, scores_));
  if (!present) return {};
  if (scores_.size() != size())
    return format_error(checkpoint, fmt::format("{} has {} entries for {} tokens", scores_key,
                                                scores_.size(), size()));
  for (std::size_t i = 0; i < scores_.size(); ++i)
    if (std::isnan(scores_[i]))
      return format_error(checkpoint,
                          fmt::format("{}: the score of token {} is NaN", scores_key, i));
  return {};
}

void Vocabulary::build_index() {
  slots_.resize(std::bit_ceil(size() * 2));
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < size(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    const std::string_view wanted = text(id);
    if (wanted.empty()) continue;  // an empty text matches nothing
    const std::uint32_t hash = hash_of(wanted);
    std::size_t at = hash & mask;
    bool known = false;  // of equal texts the first keeps the name
    for (; slots_[at].id != no_token && !known; at = (at + 1) & mask)
      known = slots_[at].hash == hash && text(slots_[at].id) == wanted;
    if (!known) slots_[at] = {hash, id};
  }
}

TokenId Vocabulary::find(std::string_view wanted) const noexcept {
  if (wanted.empty() || wanted.size() > longest_text_bytes_) return no_token;
  const std::uint32_t hash = hash_of(wanted);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at].id != no_token; at = (at + 1) & mask)
    if (slots_[at].hash == hash && text(slots_[at].id) == wanted) return slots_[at].id;
  return no_token;
}

}  // namespace millrace
