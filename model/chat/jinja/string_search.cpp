#include "model/chat/jinja/string_search.h"

#include <algorithm>
#include <vector>

namespace millrace::jinja {

namespace {

// Knuth, Morris and Pratt's search over bytes that `at_text` and `at_needle` give by position.
// std::string_view::find is quadratic on texts that are made for it.
template <class TextAt, class NeedleAt>
std::size_t linear_find(std::size_t text_size, TextAt at_text, std::size_t needle_size,
                        NeedleAt at_needle) {
  std::vector<std::size_t> fallback(needle_size, 0);
  for (std::size_t i = 1, matched = 0; i < needle_size; ++i) {
    while (matched > 0 && at_needle(i) != at_needle(matched)) matched = fallback[matched - 1];
    if (at_needle(i) == at_needle(matched)) ++matched;
    fallback[i] = matched;
  }
  for (std::size_t i = 0, matched = 0; i < text_size; ++i) {
    while (matched > 0 && at_text(i) != at_needle(matched)) matched = fallback[matched - 1];
    if (at_text(i) == at_needle(matched)) ++matched;
    if (matched == needle_size) return i + 1 - needle_size;
  }
  return std::string_view::npos;
}

// Short needles: the plain search looks at each byte at most this often.
constexpr std::size_t short_needle = 32;

}  // namespace

std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from,
                      Budget& budget) {
  if (from > text.size()) return std::string_view::npos;
  const std::string_view rest = text.substr(from);
  std::size_t at = 0;
  if (needle.size() <= short_needle) {
    at = rest.find(needle);
  } else if (needle.size() <= rest.size()) {
    at = linear_find(
        rest.size(), [&](std::size_t i) { return rest[i]; }, needle.size(),
        [&](std::size_t i) { return needle[i]; });
  } else {
    at = std::string_view::npos;
  }
  budget.work_bytes(at == std::string_view::npos ? rest.size() : at + needle.size());
  return at == std::string_view::npos ? at : from + at;
}

std::size_t find_last_text(std::string_view text, std::string_view needle, Budget& budget) {
  if (needle.size() > text.size()) return std::string_view::npos;
  if (needle.size() <= short_needle) {
    const std::size_t found = text.rfind(needle);
    budget.work_bytes(found == std::string_view::npos ? text.size() : text.size() - found);
    return found;
  }
  budget.work_bytes(text.size());
  const std::size_t from_end = linear_find(
      text.size(), [&](std::size_t i) { return text[text.size() - 1 - i]; }, needle.size(),
      [&](std::size_t i) { return needle[needle.size() - 1 - i]; });
  if (from_end == std::string_view::npos) return from_end;
  return text.size() - from_end - needle.size();
}

}  // namespace millrace::jinja
