#include "model/tokenizer/special_splitter.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace millrace {

namespace {

bool is_special(TokenKind kind) noexcept {
  return kind == TokenKind::control || kind == TokenKind::unknown ||
         kind == TokenKind::user_defined;
}

std::uint8_t byte_at(std::string_view text, std::size_t index) noexcept {
  return static_cast<std::uint8_t>(text[index]);
}

bool touches(std::span<const TextRange> ranges, std::size_t begin, std::size_t end) noexcept {
  const auto range =
      std::upper_bound(ranges.begin(), ranges.end(), begin,
                       [](std::size_t value, const TextRange& other) { return value < other.end; });
  return range != ranges.end() && range->begin < end;
}

// Appends the parts of `raw` to `out`, cut at each occurrence of `text` that is none of the
// `excluded` places: `first` is the address that those count from.
void cut(std::string_view raw, std::string_view text, TokenId token, const char* first,
         std::span<const TextRange> excluded, std::vector<Fragment>& out) {
  std::size_t from = 0;
  for (std::size_t at = raw.find(text); at != std::string_view::npos; at = raw.find(text, from)) {
    const std::size_t begin = static_cast<std::size_t>(raw.data() - first) + at;
    if (touches(excluded, begin, begin + text.size())) {
      from = at + 1;
      continue;
    }
    if (at > 0) out.push_back({raw.substr(0, at), no_token});
    out.push_back({{}, token});
    raw.remove_prefix(at + text.size());
    from = 0;
  }
  if (!raw.empty()) out.push_back({raw, no_token});
}

}  // namespace

SpecialSplitter::SpecialSplitter(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    // Of equal texts only the first is ever found; empty ones never.
    if (is_special(vocabulary.kind(id)) && vocabulary.find(vocabulary.text(id)) == id)
      by_rank_.push_back(id);
  }
  std::stable_sort(by_rank_.begin(), by_rank_.end(), [&](TokenId a, TokenId b) {
    return vocabulary.text(a).size() > vocabulary.text(b).size();
  });

  rank_of_.resize(by_rank_.size());
  std::iota(rank_of_.begin(), rank_of_.end(), 0U);
  std::sort(rank_of_.begin(), rank_of_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return vocabulary.text(by_rank_[a]) < vocabulary.text(by_rank_[b]);
  });
  for (std::uint32_t i = 0; i < rank_of_.size(); ++i) {
    sorted_.push_back(vocabulary.text(by_rank_[rank_of_[i]]));
    Bucket& bucket = buckets_[byte_at(sorted_.back(), 0)];
    if (bucket.end == 0) bucket.begin = i;
    bucket.end = i + 1;
  }
}

std::vector<bool> SpecialSplitter::occurring(std::string_view text) const {
  std::vector<bool> found(by_rank_.size(), false);
  std::array<std::uint32_t, 256> missing{};  // tokens of the bucket that were not found yet
  for (std::size_t byte = 0; byte < missing.size(); ++byte)
    missing[byte] = buckets_[byte].end - buckets_[byte].begin;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::uint8_t first = byte_at(text, at);
    if (missing[first] == 0) continue;
    // sorted_[begin, end): the tokens whose first `depth` bytes are those at `at`.
    auto [begin, end] = buckets_[first];
    for (std::size_t depth = 1; begin < end; ++depth) {
      if (sorted_[begin].size() == depth) {
        if (!found[rank_of_[begin]]) --missing[first];
        found[rank_of_[begin++]] = true;
      }
      if (begin == end || at + depth == text.size()) break;
      const std::uint8_t byte = byte_at(text, at + depth);
      if (byte_at(sorted_[begin], depth) == byte && byte_at(sorted_[end - 1], depth) == byte)
        continue;  // all of them go on alike
      const auto first_of = [&](auto is_before) {
        return static_cast<std::uint32_t>(
            std::partition_point(
                sorted_.begin() + begin, sorted_.begin() + end,
                [&](std::string_view token) { return is_before(byte_at(token, depth), byte); }) -
            sorted_.begin());
      };
      const std::uint32_t lower = first_of(std::less<>());
      end = first_of(std::less_equal<>());
      begin = lower;
    }
  }
  return found;
}

bool SpecialSplitter::wanted(std::size_t rank, bool parse_special) const noexcept {
  return parse_special || vocabulary_.kind(by_rank_[rank]) == TokenKind::user_defined;
}

std::vector<Fragment> SpecialSplitter::split(std::string_view text, bool parse_special,
                                             std::span<const TextRange> never_special) const {
  if (text.empty()) return {};
  std::vector<Fragment> fragments{{text, no_token}};
  const std::vector<bool> found = occurring(text);
  std::vector<Fragment> cut_fragments;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    if (!found[rank] || !wanted(rank, parse_special)) continue;
    const TokenId token = by_rank_[rank];
    const bool always = vocabulary_.kind(token) == TokenKind::user_defined;
    const auto excluded = always ? std::span<const TextRange>() : never_special;
    cut_fragments.clear();
    for (const Fragment& fragment : fragments) {
      if (fragment.token != no_token) cut_fragments.push_back(fragment);
      else cut(fragment.raw, vocabulary_.text(token), token, text.data(), excluded, cut_fragments);
    }
    fragments.swap(cut_fragments);
  }
  return fragments;
}

}  // namespace millrace
