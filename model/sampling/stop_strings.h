// Stop strings in generated text, which may begin and end inside tokens. Text that could be the
// start of one is held back until that is decided.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace millrace {

// One per generated text. Not thread-safe. The outcome does not depend on how the text is cut into
// pieces: the first stop string to be complete ends it (of several that end at once, the longest).
class StopStrings {
 public:
  static constexpr std::size_t strings_max = 64;
  static constexpr std::size_t string_bytes_max = 4096;

  StopStrings() = default;  // none: every text passes
  // Empty strings are ignored. Fails with `usage` if there are too many or too long ones.
  static Result<StopStrings> create(std::vector<std::string> strings);

  // Takes the next piece; returns the text that is certain now, valid until the next call. After a
  // match (stopped()) further pieces are ignored. The stop string itself is never returned.
  std::string_view push(std::string_view piece);
  // The end of the text: what was held back, since no stop string came of it. Empty after a match.
  std::string_view flush();

  bool stopped() const noexcept { return stopped_; }
  // The string that matched; empty before that.
  std::string_view matched() const noexcept { return matched_; }

 private:
  std::size_t held_length() const noexcept;

  std::vector<std::string> strings_;
  std::string pending_;  // shorter than the longest string between calls
  std::string ready_;
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace millrace
