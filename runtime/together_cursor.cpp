#include "runtime/together_cursor.h"

#include <algorithm>

namespace millrace {

template <class Visit>
TogetherCursor::Place TogetherCursor::for_part(std::size_t tokens, Visit visit) const {
  Place at = begin_;
  while (tokens > 0) {
    const std::size_t left = sequences_[at.sequence].tokens.size() - at.token;
    const std::size_t count = std::min(tokens, left);
    visit(at.sequence, at.token, count);
    tokens -= count;
    at.token += count;
    if (count == left) at = {at.sequence + 1, 0};
  }
  return at;
}

std::size_t TogetherCursor::take(std::span<TokenPlace> places,
                                 std::span<std::uint32_t> enders) noexcept {
  part_ = places.size();
  std::size_t ending = 0;
  for_part(part_, [&](std::size_t sequence, std::size_t first, std::size_t count) {
    if (first + count == sequences_[sequence].tokens.size())
      enders[ending++] = static_cast<std::uint32_t>(sequence);
  });
  std::size_t next = 0;
  std::size_t next_end = part_ - ending;
  for_part(part_, [&](std::size_t sequence, std::size_t first, std::size_t count) {
    const SequenceTokens& each = sequences_[sequence];
    auto position = static_cast<std::uint32_t>(each.session->tokens_.size());
    for (std::size_t i = first; i < first + count; ++i) {
      const bool last = i + 1 == each.tokens.size();
      places[last ? next_end++ : next++] = {each.tokens[i], position++, &each.session->state_};
    }
  });
  return ending;
}

void TogetherCursor::append() {
  begin_ = for_part(part_, [&](std::size_t sequence, std::size_t first, std::size_t count) {
    const SequenceTokens& each = sequences_[sequence];
    each.session->append(each.tokens.subspan(first, count));
  });
  taken_ += part_;
}

void TogetherCursor::rewind() noexcept {
  for_part(part_, [&](std::size_t sequence, std::size_t first, std::size_t) {
    Session& session = *sequences_[sequence].session;
    session.rewind(session.tokens_.size() - first);
  });
}

}  // namespace millrace
