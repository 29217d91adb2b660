#include "model/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "model/tokenizer/byte_alphabet.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

namespace millrace {

namespace {

constexpr const char* merges_key = "tokenizer.ggml.merges";

std::uint64_t pair_of(TokenId left, TokenId right) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

void BpeEncoder::MergeTable::reserve(std::size_t merges) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(merges * 2, 16));
  slots_.assign(slots, {});
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(slots));
}

std::size_t BpeEncoder::MergeTable::slot_of(std::uint64_t pair) const noexcept {
  // Fibonacci hashing; the first step lets the high half reach the low bits.
  return static_cast<std::size_t>(((pair ^ (pair >> 29)) * 0x9E3779B97F4A7C15U) >> shift_);
}

void BpeEncoder::MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t at = slot_of(pair);
  while (slots_[at].pair != empty) {
    if (slots_[at].pair == pair) return;
    at = (at + 1) & (slots_.size() - 1);
  }
  slots_[at] = {pair, merge};
}

Merge BpeEncoder::MergeTable::find(TokenId left, TokenId right) const noexcept {
  const std::uint64_t pair = pair_of(left, right);
  for (std::size_t at = slot_of(pair);; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair == pair) return slots_[at].merge;
    if (slots_[at].pair == empty) return {};
  }
}

BpeEncoder::BpeEncoder(const Vocabulary& vocabulary, Pretokenizer pretokenizer, bool ignore_merges)
    : vocabulary_(vocabulary),
      pretokenizer_(std::move(pretokenizer)),
      ignore_merges_(ignore_merges) {
  unsigned missing = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary.find(alphabet_character(static_cast<std::uint8_t>(byte)));
    if (byte_tokens_[byte] == no_token) ++missing;
  }
  if (missing > 0)
    log_warning(fmt::format(
        "the vocabulary has no token for {} of the 256 bytes: text that needs them loses them",
        missing));
}

Result<std::unique_ptr<BpeEncoder>> BpeEncoder::create(const Checkpoint& checkpoint,
                                                       const Vocabulary& vocabulary,
                                                       const PretokenizerRules& rules) {
  MILLRACE_ASSIGN(Pretokenizer pretokenizer, Pretokenizer::create(rules));
  std::unique_ptr<BpeEncoder> made(
      new BpeEncoder(vocabulary, std::move(pretokenizer), rules.ignore_merges));
  MILLRACE_TRY(made->read_merges(checkpoint));
  return made;
}

Status BpeEncoder::read_merges(const Checkpoint& checkpoint) {
  const auto error = [&](const std::string& what) {
    return Error{ErrorCode::format,
                 fmt::format("{}: {}: {}", checkpoint.display_path(), merges_key, what)};
  };
  const std::vector<std::string>* merges = checkpoint.string_array(merges_key);
  if (merges == nullptr) return error("missing or no string array");
  if (merges->size() >= Merge::never) return error("too many merges");
  merges_.reserve(merges->size());
  std::string joined;
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    const std::string_view text = (*merges)[rank];
    const std::size_t space = text.find(' ', 1);  // the left part may itself begin with a space
    if (text.empty() || space == std::string_view::npos || space + 1 == text.size())
      return error(fmt::format("merge {} ({}) is not two parts", rank, printable(text)));
    const std::string_view left = text.substr(0, space);
    const std::string_view right = text.substr(space + 1);
    joined.assign(left).append(right);
    const TokenId ids[] = {vocabulary_.find(left), vocabulary_.find(right),
                           vocabulary_.find(joined)};
    const std::string_view texts[] = {left, right, joined};
    for (unsigned i = 0; i < 3; ++i)
      if (ids[i] == no_token)
        return error(fmt::format("merge {} ({}): {} is no token", rank, printable(text),
                                 printable(texts[i])));
    merges_.insert(ids[0], ids[1], {static_cast<std::uint32_t>(rank), ids[2]});
  }
  return {};
}

TokenId BpeEncoder::whole_segment(std::string_view alphabet_text) const noexcept {
  const TokenId id = vocabulary_.find(alphabet_text);
  // Raw text must not become a control token that happens to look like it.
  return id != no_token && vocabulary_.kind(id) == TokenKind::normal ? id : no_token;
}

// One encode call: its buffers, and the words it has met. A text repeats its words, so their ids
// are copied from where they were written first; the table is small enough to stay in cache and
// forgets by overwriting.
class BpeEncoder::Run {
 public:
  Run(const BpeEncoder& encoder, std::vector<TokenId>& out) : encoder_(encoder), out_(out) {}

  // Valid stretches through the pre-tokenizer, invalid bytes as they are.
  Status fragment(std::string_view raw) {
    std::size_t done = 0;
    while (done < raw.size()) {
      std::size_t end = done;
      while (const std::size_t length = utf8_valid_length(raw.substr(end))) end += length;
      MILLRACE_TRY(encoder_.pretokenizer_.split(raw.substr(done, end - done), scratch_,
                                                [&](std::string_view part) { segment(part); }));
      done = end;
      while (end < raw.size() && utf8_valid_length(raw.substr(end)) == 0) ++end;
      if (end > done) segment(raw.substr(done, end - done));
      done = end;
    }
    return {};
  }

 private:
  struct Known {
    std::string_view text;  // points into the text that is encoded
    std::size_t begin = 0;  // its ids in out_
    std::size_t count = 0;
  };
  static constexpr std::size_t known_text_bytes_max = 32;
  static constexpr std::size_t known_slots = 4096;

  static std::size_t slot_of(std::string_view text) noexcept {
    std::uint64_t hash = text.size();
    for (const char byte : text) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001B3U;
    return static_cast<std::size_t>((hash ^ (hash >> 32)) % known_slots);
  }

  void segment(std::string_view text) {
    if (text.size() == 1) {
      emit(encoder_.byte_tokens_[static_cast<std::uint8_t>(text.front())]);
      return;
    }
    if (text.size() > known_text_bytes_max) {
      merge(text);
      return;
    }
    Known& known = known_[slot_of(text)];
    if (known.text == text) {
      for (std::size_t i = 0; i < known.count; ++i) {
        const TokenId id = out_[known.begin + i];  // a copy: push_back may move the array
        out_.push_back(id);
      }
      return;
    }
    const std::size_t begin = out_.size();
    merge(text);
    known = {text, begin, out_.size() - begin};
  }

  void merge(std::string_view text) {
    if (encoder_.ignore_merges_) {
      alphabet_text_.clear();
      append_alphabet(text, alphabet_text_);
      const TokenId id = encoder_.whole_segment(alphabet_text_);
      if (id != no_token) return emit(id);
    }
    merger_.clear();
    for (std::size_t i = 0; i < text.size(); ++i)
      merger_.add(i, 1, encoder_.byte_tokens_[static_cast<std::uint8_t>(text[i])]);
    merger_.run([&](const Merger::Symbol& left, const Merger::Symbol& right) {
      return left.id == no_token || right.id == no_token ? Merge{}
                                                         : encoder_.merges_.find(left.id, right.id);
    });
    merger_.for_each([&](const Merger::Symbol& symbol) { emit(symbol.id); });
  }

  void emit(TokenId id) {
    if (id != no_token) out_.push_back(id);
  }

  const BpeEncoder& encoder_;
  std::vector<TokenId>& out_;
  Pretokenizer::Scratch scratch_;
  Merger merger_;
  std::string alphabet_text_;
  std::vector<Known> known_{known_slots};
};

Status BpeEncoder::encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const {
  Run run(*this, out);
  for (const Fragment& fragment : fragments) {
    if (fragment.token != no_token) out.push_back(fragment.token);
    else MILLRACE_TRY(run.fragment(fragment.raw));
  }
  return {};
}

}  // namespace millrace
