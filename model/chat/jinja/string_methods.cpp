// Python's str methods.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/builtins.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/formatting.h"
#include "model/chat/jinja/string_search.h"
#include "model/chat/jinja/text_operations.h"

namespace millrace::jinja {

namespace {

const TextRef& subject(const Arguments& call) { return call.self.as_text(); }

template <Side side>
ValueResult strip_method(Arguments& call) {
  MILLRACE_TRY(call.bind({"chars"}));
  const bool blanks = !call.given(0) || call[0].is_none();
  if (blanks) return strip(subject(call), nullptr, side, call.budget());
  MILLRACE_ASSIGN(const TextRef characters, call.text(0, ""));
  return strip(subject(call), characters.get(), side, call.budget());
}

template <Case wanted>
ValueResult case_method(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  return change_case(subject(call), wanted, call.budget());
}

Value texts(std::vector<TextRef> parts, Arguments& call, SequenceKind kind = SequenceKind::list) {
  std::vector<Value> items(std::make_move_iterator(parts.begin()),
                           std::make_move_iterator(parts.end()));
  return call.heap().sequence(kind, std::move(items));
}

template <bool from_right>
ValueResult split_method(Arguments& call) {
  MILLRACE_TRY(call.bind({"sep", "maxsplit"}));
  MILLRACE_ASSIGN(const std::int64_t splits, call.integer(1, -1));
  if (!call.given(0) || call[0].is_none())
    return texts(split_at_space(subject(call), splits, from_right, call.budget()), call);
  MILLRACE_ASSIGN(const TextRef separator, call.text(0, ""));
  if (separator->empty()) return call.error("the separator is empty");
  return texts(split_at(subject(call), *separator, splits, from_right, call.budget()), call);
}

ValueResult splitlines(Arguments& call) {
  MILLRACE_TRY(call.bind({"keepends"}));
  return texts(split_lines(subject(call), call.boolean(0, false), call.budget()), call);
}

template <bool from_right>
ValueResult partition(Arguments& call) {
  MILLRACE_TRY(call.bind({"sep"}, 1));
  MILLRACE_ASSIGN(const TextRef separator, call.text(0, ""));
  if (separator->empty()) return call.error("the separator is empty");
  std::vector<TextRef> parts = split_at(subject(call), *separator, 1, from_right, call.budget());
  const TextRef empty = make_text("");
  if (parts.size() == 2) parts.insert(parts.begin() + 1, separator);
  else if (from_right) parts = {empty, empty, parts[0]};
  else parts = {parts[0], empty, empty};
  return texts(std::move(parts), call, SequenceKind::tuple);
}

ValueResult replace_method(Arguments& call) {
  MILLRACE_TRY(call.bind({"old", "new", "count"}, 2));
  MILLRACE_ASSIGN(const TextRef from, call.text(0, ""));
  MILLRACE_ASSIGN(const TextRef to, call.text(1, ""));
  MILLRACE_ASSIGN(const std::int64_t count, call.integer(2, -1));
  return replace(subject(call), *from, *to, count, call.budget());
}

// [begin, end) in bytes of the part that find and its like look at; begin > end if it is nothing.
Result<TextRange> searched(Arguments& call) {
  const auto count = static_cast<std::int64_t>(subject(call)->characters());
  const auto bound = [&](std::size_t index, std::int64_t fallback) -> Result<std::int64_t> {
    if (call.given(index) && call[index].is_none()) return fallback;
    MILLRACE_ASSIGN(const std::int64_t value, call.integer(index, fallback));
    if (value < 0) return std::max<std::int64_t>(value + count, 0);
    return value;
  };
  MILLRACE_ASSIGN(const std::int64_t begin, bound(1, 0));
  MILLRACE_ASSIGN(const std::int64_t end, bound(2, count));
  if (begin > count || begin > end) return TextRange{1, 0};
  Budget& budget = call.budget();
  return TextRange{subject(call)->byte_of(static_cast<std::size_t>(begin), budget),
                   subject(call)->byte_of(static_cast<std::size_t>(std::min(end, count)), budget)};
}

template <bool last, bool must_exist>
ValueResult find_method_of(Arguments& call) {
  MILLRACE_TRY(call.bind({"sub", "start", "end"}, 1));
  MILLRACE_ASSIGN(const TextRef needle, call.text(0, ""));
  MILLRACE_ASSIGN(const TextRange range, searched(call));
  std::size_t found = std::string_view::npos;
  if (range.begin <= range.end) {
    const std::string_view part = subject(call)->view().substr(0, range.end);
    if (last) {
      found = find_last_text(part.substr(range.begin), needle->view(), call.budget());
      if (found != std::string_view::npos) found += range.begin;
    } else {
      found = find_text(part, needle->view(), range.begin, call.budget());
    }
  }
  if (found == std::string_view::npos) {
    if (must_exist) return call.error("the text does not occur");
    return Value(std::int64_t{-1});
  }
  call.budget().work_bytes(found);
  const std::string_view before = subject(call)->view().substr(0, found);
  return Value(std::int64_t{std::count_if(before.begin(), before.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  })});
}

ValueResult count(Arguments& call) {
  MILLRACE_TRY(call.bind({"sub", "start", "end"}, 1));
  MILLRACE_ASSIGN(const TextRef needle, call.text(0, ""));
  MILLRACE_ASSIGN(const TextRange range, searched(call));
  if (range.begin > range.end) return Value(std::int64_t{0});
  const TextRef part = slice(subject(call), range.begin, range.end, call.budget());
  if (needle->empty()) return Value(static_cast<std::int64_t>(part->characters()) + 1);
  std::int64_t found = 0;
  std::size_t at = 0;
  while ((at = find_text(part->view(), needle->view(), at, call.budget())) !=
         std::string_view::npos) {
    call.budget().work(1);
    ++found;
    at += needle->size();
  }
  return Value(found);
}

template <bool at_end>
ValueResult starts_or_ends(Arguments& call) {
  MILLRACE_TRY(call.bind({"affix", "start", "end"}, 1));
  MILLRACE_ASSIGN(const TextRange range, searched(call));
  std::vector<Value> candidates{call[0]};
  if (call[0].is(Kind::sequence) && call[0].as_sequence()->kind == SequenceKind::tuple)
    candidates = call[0].as_sequence()->items;
  call.budget().work(candidates.size());
  for (const Value& candidate : candidates) {
    if (!candidate.is_string())
      return call.error(fmt::format("needs a string or a tuple of strings, not a value of type {}",
                                    type_name(candidate)));
    if (range.begin > range.end) continue;
    const std::string_view part =
        subject(call)->view().substr(range.begin, range.end - range.begin);
    call.budget().work_bytes(candidate.view().size());
    if (at_end ? part.ends_with(candidate.view()) : part.starts_with(candidate.view())) return true;
  }
  return false;
}

template <bool at_end>
ValueResult remove_affix(Arguments& call) {
  MILLRACE_TRY(call.bind({"affix"}, 1));
  MILLRACE_ASSIGN(const TextRef affix, call.text(0, ""));
  const TextRef& text = subject(call);
  if (at_end ? !text->view().ends_with(affix->view()) : !text->view().starts_with(affix->view()))
    return text;
  return at_end ? slice(text, 0, text->size() - affix->size(), call.budget())
                : slice(text, affix->size(), text->size(), call.budget());
}

ValueResult join_method(Arguments& call) {
  MILLRACE_TRY(call.bind({"iterable"}, 1));
  MILLRACE_ASSIGN(const std::vector<Value> items, items_of(call[0], call.heap()));
  TextBuilder out(call.budget());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string())
      return call.error(fmt::format("item {} is no string but of type {}", i, type_name(items[i])));
    if (i != 0) out.append(*subject(call));
    out.append(*items[i].as_text());
  }
  return out.finish();
}

ValueResult format_method(Arguments& call) {
  return brace_format(subject(call), call.positional, call.keywords, call.budget());
}

// Every character fits, and there is one.
template <bool (*fits)(char32_t)>
ValueResult all_characters(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  std::string_view rest = subject(call)->view();
  call.budget().work_bytes(rest.size() * 8);
  if (rest.empty()) return false;
  while (!rest.empty()) {
    const Character character = first_character(rest);
    if (!fits(character.code)) return false;
    rest.remove_prefix(character.bytes);
  }
  return true;
}

bool is_alphanumeric(char32_t code) { return is_letter(code) || is_digit(code); }

ValueResult isascii(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  return subject(call)->characters() == subject(call)->size();
}

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
ValueResult has_case(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  bool found = false;
  call.budget().work_bytes(subject(call)->size() * 8);
  for (std::string_view rest = subject(call)->view(); !rest.empty();) {
    const Character character = first_character(rest);
    if (other(character.code)) return false;
    found |= wanted(character.code);
    rest.remove_prefix(character.bytes);
  }
  return found;
}

enum class Align : std::uint8_t { left, right, center };

template <Align align>
ValueResult justify(Arguments& call) {
  MILLRACE_TRY(call.bind({"width", "fillchar"}, 1));
  MILLRACE_ASSIGN(const std::int64_t width, call.integer(0, 0));
  MILLRACE_ASSIGN(const TextRef fill, call.text(1, " "));
  if (fill->characters() != 1) return call.error("the fill must be one character");
  const auto size = static_cast<std::int64_t>(subject(call)->characters());
  if (width <= size) return subject(call);
  const std::int64_t missing = width - size;
  // Python's center puts the odd blank left if the width is odd.
  const std::int64_t left = align == Align::left    ? 0
                            : align == Align::right ? missing
                                                    : missing / 2 + (missing & width & 1);
  TextBuilder out(call.budget());
  out.append_repeated(*fill, left).append(*subject(call)).append_repeated(*fill, missing - left);
  return out.finish();
}

ValueResult zfill(Arguments& call) {
  MILLRACE_TRY(call.bind({"width"}, 1));
  MILLRACE_ASSIGN(const std::int64_t width, call.integer(0, 0));
  const TextRef& text = subject(call);
  const bool sign = text->view().starts_with('-') || text->view().starts_with('+');
  TextBuilder out(call.budget());
  out.append(*text, 0, sign ? 1 : 0);
  const auto size = static_cast<std::int64_t>(text->characters());
  if (width > size) out.append_repeated(*make_text("0"), width - size);
  out.append(*text, sign ? 1 : 0, text->size());
  return out.finish();
}

}  // namespace

std::span<const Builtin> string_methods() noexcept {
  static constexpr std::array table = {
      Builtin{"strip", strip_method<Side::both>},
      Builtin{"lstrip", strip_method<Side::left>},
      Builtin{"rstrip", strip_method<Side::right>},
      Builtin{"split", split_method<false>},
      Builtin{"rsplit", split_method<true>},
      Builtin{"splitlines", splitlines},
      Builtin{"partition", partition<false>},
      Builtin{"rpartition", partition<true>},
      Builtin{"replace", replace_method},
      Builtin{"find", find_method_of<false, false>},
      Builtin{"rfind", find_method_of<true, false>},
      Builtin{"index", find_method_of<false, true>},
      Builtin{"rindex", find_method_of<true, true>},
      Builtin{"count", count},
      Builtin{"startswith", starts_or_ends<false>},
      Builtin{"endswith", starts_or_ends<true>},
      Builtin{"removeprefix", remove_affix<false>},
      Builtin{"removesuffix", remove_affix<true>},
      Builtin{"upper", case_method<Case::upper>},
      Builtin{"lower", case_method<Case::lower>},
      Builtin{"casefold", case_method<Case::lower>},
      Builtin{"swapcase", case_method<Case::swapped>},
      Builtin{"capitalize", case_method<Case::capitalized>},
      Builtin{"title", case_method<Case::titled>},
      Builtin{"join", join_method},
      Builtin{"format", format_method},
      Builtin{"isalpha", all_characters<is_letter>},
      Builtin{"isalnum", all_characters<is_alphanumeric>},
      Builtin{"isdigit", all_characters<is_digit>},
      Builtin{"isdecimal", all_characters<is_digit>},
      Builtin{"isnumeric", all_characters<is_digit>},
      Builtin{"isspace", all_characters<is_space>},
      Builtin{"isascii", isascii},
      Builtin{"isupper", has_case<is_upper, is_lower>},
      Builtin{"islower", has_case<is_lower, is_upper>},
      Builtin{"ljust", justify<Align::left>},
      Builtin{"rjust", justify<Align::right>},
      Builtin{"center", justify<Align::center>},
      Builtin{"zfill", zfill},
  };
  return table;
}

}  // namespace millrace::jinja
