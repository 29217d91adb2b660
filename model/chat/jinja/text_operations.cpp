#include "model/chat/jinja/text_operations.h"

#include <algorithm>

#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/string_search.h"

namespace millrace::jinja {

namespace {

// Byte position of the character that ends before `end`.
std::size_t previous(std::string_view text, std::size_t end) noexcept {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return begin;
}

// What strip() takes away.
class StripSet {
 public:
  explicit StripSet(const Text* characters) : all_space_(characters == nullptr) {
    if (all_space_) return;
    for (std::string_view rest = characters->view(); !rest.empty();) {
      const Character character = first_character(rest);
      codes_.push_back(character.code);
      rest.remove_prefix(character.bytes);
    }
    std::sort(codes_.begin(), codes_.end());
  }
  bool has(char32_t code) const noexcept {
    return all_space_ ? is_space(code) : std::binary_search(codes_.begin(), codes_.end(), code);
  }

 private:
  bool all_space_;
  std::vector<char32_t> codes_;
};

}  // namespace

TextRef strip(const TextRef& text, const Text* characters, Side side, Budget& budget) {
  const StripSet set(characters);
  const std::string_view bytes = text->view();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  if (side != Side::right) {
    while (begin < end) {
      const Character character = first_character(bytes.substr(begin));
      if (!set.has(character.code)) break;
      begin += character.bytes;
    }
  }
  if (side != Side::left) {
    while (end > begin) {
      const std::size_t last = previous(bytes, end);
      if (!set.has(first_character(bytes.substr(last)).code)) break;
      end = last;
    }
  }
  budget.work_bytes((bytes.size() - (end - begin)) * 8);
  if (characters != nullptr) budget.work_bytes(characters->size() * 8);
  return slice(text, begin, end, budget);
}

TextRef replace(const TextRef& text, const Text& from, const Text& to, std::int64_t count,
                Budget& budget) {
  TextBuilder out(budget);
  std::size_t at = 0;
  std::uint64_t left = count < 0 ? UINT64_MAX : static_cast<std::uint64_t>(count);
  if (from.empty()) {
    for (; left > 0 && at <= text->size() && !out.overflowed(); --left) {
      out.append(to);
      budget.work(1);
      const std::size_t length = at < text->size() ? text->length_at(at) : 0;
      out.append(*text, at, at + length);
      at += length;
      if (length == 0) return out.finish();
    }
  }
  while (!from.empty() && left > 0 && !out.overflowed()) {
    const std::size_t found = find_text(text->view(), from.view(), at, budget);
    if (found == std::string_view::npos) break;
    out.append(*text, at, found).append(to);
    budget.work(1);
    at = found + from.size();
    --left;
  }
  out.append(*text, at, text->size());
  return out.finish();
}

namespace {

bool begins_filter_word(char32_t code) noexcept {
  return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

std::string in_case(char32_t code, char32_t before, bool first, Case wanted) {
  switch (wanted) {
    case Case::upper:
      return to_upper(code);
    case Case::lower:
      return to_lower(code);
    case Case::swapped:
      return is_upper(code) ? to_lower(code) : to_upper(code);
    case Case::capitalized:
      return first ? to_upper(code) : to_lower(code);
    case Case::titled:
      return !first && (is_upper(before) || is_lower(before)) ? to_lower(code) : to_upper(code);
    case Case::filter_titled:
      return first || begins_filter_word(before) ? to_upper(code) : to_lower(code);
  }
  return {};
}

}  // namespace

TextRef change_case(const TextRef& text, Case wanted, Budget& budget) {
  TextBuilder out(budget);
  budget.work(text->size());
  const std::string_view bytes = text->view();
  std::size_t kept = 0;
  char32_t before = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character character = first_character(bytes.substr(at));
    const std::string changed = in_case(character.code, before, at == 0, wanted);
    if (changed != bytes.substr(at, character.bytes)) {
      out.append(*text, kept, at).append_as(changed, *text, at);
      kept = at + character.bytes;
    }
    before = character.code;
    at += character.bytes;
  }
  out.append(*text, kept, bytes.size());
  return out.finish();
}

std::vector<TextRef> split_at(const TextRef& text, const Text& separator, std::int64_t splits,
                              bool from_right, Budget& budget) {
  std::vector<TextRef> parts;
  const auto wanted = splits < 0 ? UINT64_MAX : static_cast<std::uint64_t>(splits);
  const std::string_view bytes = text->view();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (parts.size() < wanted && !budget.exhausted()) {
    budget.work(1);
    const std::size_t found = from_right
                                  ? find_last_text(bytes.substr(0, end), separator.view(), budget)
                                  : find_text(bytes, separator.view(), begin, budget);
    if (found == std::string_view::npos) break;
    if (from_right) {
      parts.push_back(slice(text, found + separator.size(), end, budget));
      end = found;
    } else {
      parts.push_back(slice(text, begin, found, budget));
      begin = found + separator.size();
    }
  }
  parts.push_back(slice(text, begin, end, budget));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<TextRef> split_at_space(const TextRef& text, std::int64_t splits, bool from_right,
                                    Budget& budget) {
  struct Word {
    std::size_t begin, end;
  };
  std::vector<Word> words;
  const std::string_view bytes = text->view();
  budget.work_bytes(bytes.size() * 8);
  bool inside = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character character = first_character(bytes.substr(at));
    const bool space = is_space(character.code);
    if (!space && !inside) words.push_back({at, at});
    at += character.bytes;
    if (!space) words.back().end = at;
    inside = !space;
  }
  const auto wanted = splits < 0 ? SIZE_MAX : static_cast<std::size_t>(splits);
  if (words.size() > wanted) {  // what is behind the last cut stays together, blanks and all
    if (from_right) {
      const std::size_t joined = words.size() - wanted;
      words[joined - 1].begin = 0;
      words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(joined - 1));
    } else {
      words[wanted].end = bytes.size();
      words.resize(wanted + 1);
    }
  }
  std::vector<TextRef> parts;
  for (const Word& word : words) {
    if (budget.exhausted()) break;
    parts.push_back(slice(text, word.begin, word.end, budget));
    budget.work(1);
  }
  return parts;
}

std::vector<TextRef> split_lines(const TextRef& text, bool keep_ends, Budget& budget) {
  std::vector<TextRef> lines;
  const std::string_view bytes = text->view();
  budget.work_bytes(bytes.size() * 8);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size() && !budget.exhausted();) {
    const Character character = first_character(bytes.substr(at));
    std::size_t next = at + character.bytes;
    if (is_line_end(character.code)) {
      if (character.code == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(slice(text, begin, keep_ends ? next : at, budget));
      budget.work(1);
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(slice(text, begin, bytes.size(), budget));
  return lines;
}

}  // namespace millrace::jinja
