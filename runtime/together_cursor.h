// How the tokens of several sequences are cut into parts that go through the model together: in the
// order of the sequences, but within a part the last tokens of those that end in it stand at the
// end, so that the logits wanted are one stretch of rows. Allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/engine.h"

namespace millrace {

// Of one call of Engine::process_together; borrows its sequences.
class TogetherCursor {
 public:
  explicit TogetherCursor(std::span<const SequenceTokens> sequences) : sequences_(sequences) {}

  // Tokens that the sessions have got by append().
  std::size_t taken() const noexcept { return taken_; }
  // The next places.size() tokens. Returns how many sequences end with them: enders[i] is the one
  // whose last token stands i places behind the others. enders: as long as places.
  std::size_t take(std::span<TokenPlace> places, std::span<std::uint32_t> enders) noexcept;
  // The part went through: its tokens are the sessions'.
  void append();
  // It did not: sessions that have only some of their tokens are as they were before, as far as
  // their states allow.
  void rewind() noexcept;

 private:
  struct Place {
    std::size_t sequence = 0, token = 0;
  };
  // Calls visit(sequence, first token, count) for each sequence in the next `tokens` tokens.
  template <class Visit>
  Place for_part(std::size_t tokens, Visit visit) const;

  std::span<const SequenceTokens> sequences_;
  Place begin_;           // of the part
  std::size_t part_ = 0;  // its tokens
  std::size_t taken_ = 0;
};

}  // namespace millrace
