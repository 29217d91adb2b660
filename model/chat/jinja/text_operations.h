// What string methods and filters have in common. All keep foreign parts marked and count their
// work.
#pragma once

#include <optional>
#include <vector>

#include "model/chat/jinja/text.h"

namespace millrace::jinja {

enum class Side : std::uint8_t { both, left, right };

// Without the characters at its ends that are in `characters` (null: white space).
TextRef strip(const TextRef& text, const Text* characters, Side side, Budget& budget);

// At most `count` replacements (negative: all). An empty `from` stands before every character and
// at the end.
TextRef replace(const TextRef& text, const Text& from, const Text& to, std::int64_t count,
                Budget& budget);

enum class Case : std::uint8_t { upper, lower, swapped, capitalized, titled, filter_titled };
// titled: str.title(), every letter behind a non-letter; filter_titled: Jinja's filter, which knows
// blanks, hyphens and opening brackets only.
TextRef change_case(const TextRef& text, Case wanted, Budget& budget);

// Parts between separators, at most `splits` cuts (negative: all), counted from the right end if
// so asked. `separator` must not be empty.
std::vector<TextRef> split_at(const TextRef& text, const Text& separator, std::int64_t splits,
                              bool from_right, Budget& budget);
// Parts between runs of white space.
std::vector<TextRef> split_at_space(const TextRef& text, std::int64_t splits, bool from_right,
                                    Budget& budget);
std::vector<TextRef> split_lines(const TextRef& text, bool keep_ends, Budget& budget);

}  // namespace millrace::jinja
