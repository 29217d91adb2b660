// Filters on texts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/builtins.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/formatting.h"
#include "model/chat/jinja/printing.h"
#include "model/chat/jinja/text_operations.h"

namespace millrace::jinja {

namespace {

// Filters take any value and print it first.
Result<TextRef> subject(Arguments& call) { return to_text(call.self, call.budget()); }

// Some insist on a string.
Result<TextRef> string_subject(Arguments& call) {
  if (call.self.is_string()) return call.self.as_text();
  if (call.self.is_undefined()) return call.error(undefined_message(call.self));
  return call.error(fmt::format("needs a string, not a value of type {}", type_name(call.self)));
}

ValueResult string_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_ASSIGN(TextRef text, subject(call));
  return Value(std::move(text));
}

template <Case wanted>
ValueResult case_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_ASSIGN(const TextRef text, subject(call));
  return change_case(text, wanted, call.budget());
}

ValueResult trim(Arguments& call) {
  MILLRACE_TRY(call.bind({"chars"}));
  MILLRACE_ASSIGN(const TextRef text, subject(call));
  if (!call.given(0) || call[0].is_none()) return strip(text, nullptr, Side::both, call.budget());
  MILLRACE_ASSIGN(const TextRef characters, call.text(0, ""));
  return strip(text, characters.get(), Side::both, call.budget());
}

ValueResult replace_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({"old", "new", "count"}, 2));
  MILLRACE_ASSIGN(const TextRef text, subject(call));
  MILLRACE_ASSIGN(const TextRef from, to_text(call[0], call.budget()));
  MILLRACE_ASSIGN(const TextRef to, to_text(call[1], call.budget()));
  std::int64_t count = -1;
  if (call.given(2) && !call[2].is_none()) {
    MILLRACE_ASSIGN(count, call.integer(2, -1));
  }
  return replace(text, *from, *to, count, call.budget());
}

// What a JSON or text indent argument means: a number of blanks, or the text itself.
Result<std::string> indentation(Arguments& call, std::size_t index) {
  if (call[index].is_string()) return call[index].as_text()->bytes();
  MILLRACE_ASSIGN(const std::int64_t width, call.integer(index, 0));
  if (width > 1000) return call.error("the indent is too wide");
  return std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
}

ValueResult indent(Arguments& call) {
  MILLRACE_TRY(call.bind({"width", "first", "blank"}));
  std::string blanks(4, ' ');
  if (call.given(0)) {
    MILLRACE_ASSIGN(blanks, indentation(call, 0));
  }
  MILLRACE_ASSIGN(const TextRef text, string_subject(call));
  TextBuilder whole(call.budget());
  whole.append(*text).append("\n");  // so that a newline at the end is not lost
  const std::vector<TextRef> lines = split_lines(whole.finish(), false, call.budget());
  const bool blank_lines = call.boolean(2, false);
  TextBuilder out(call.budget());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) out.append("\n");
    const bool wanted = i == 0 ? call.boolean(1, false) : blank_lines || !lines[i]->empty();
    if (wanted) out.append(blanks);
    out.append(*lines[i]);
  }
  return out.finish();
}

ValueResult tojson(Arguments& call) {
  MILLRACE_TRY(call.bind({"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  // Jinja's own filter has the indent first: tojson(2) means that.
  const bool indent_first = call.given(0) && call[0].is(Kind::integer) && !call.given(1);
  style.ascii = !indent_first && call.boolean(0, false);
  const std::size_t indent_at = indent_first ? 0 : 1;
  if (call.given(indent_at) && !call[indent_at].is_none()) {
    MILLRACE_ASSIGN(style.indent, indentation(call, indent_at));
    style.item_separator.pop_back();  // no blank before a line end
  }
  if (call.given(2) && !call[2].is_none()) {
    MILLRACE_ASSIGN(const std::vector<Value> parts, items_of(call[2], call.heap()));
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string())
      return call.error("'separators' must be two strings");
    style.item_separator = parts[0].as_text()->bytes();
    style.key_separator = parts[1].as_text()->bytes();
  }
  style.sort_keys = call.boolean(3, false);
  MILLRACE_ASSIGN(TextRef text, to_json(call.self, style, call.budget()));
  return Value(std::move(text));
}

ValueResult escape(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_ASSIGN(TextRef text, subject(call));
  constexpr std::array<std::pair<const char*, const char*>, 5> entities = {
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}};
  for (const auto& [plain, entity] : entities)
    text = replace(text, *make_text(plain), *make_text(entity), -1, call.budget());
  return Value(std::move(text));
}

ValueResult format_filter(Arguments& call) {
  if (!call.keywords.empty()) return call.error("values by name are not supported");
  MILLRACE_ASSIGN(const TextRef text, subject(call));
  return percent_format(text, call.positional, call.budget());
}

ValueResult center(Arguments& call) {
  MILLRACE_TRY(call.bind({"width"}));
  MILLRACE_ASSIGN(const std::int64_t width, call.integer(0, 80));
  MILLRACE_ASSIGN(const TextRef text, subject(call));
  const auto size = static_cast<std::int64_t>(text->characters());
  if (width <= size) return Value(text);
  const std::int64_t missing = width - size;
  const std::int64_t left = missing / 2 + (missing & width & 1);
  const TextRef blank = make_text(" ");
  TextBuilder out(call.budget());
  out.append_repeated(*blank, left).append(*text).append_repeated(*blank, missing - left);
  return out.finish();
}

ValueResult truncate(Arguments& call) {
  MILLRACE_TRY(call.bind({"length", "killwords", "end", "leeway"}));
  MILLRACE_ASSIGN(const std::int64_t length, call.integer(0, 255));
  MILLRACE_ASSIGN(const TextRef end, call.text(2, "..."));
  MILLRACE_ASSIGN(const std::int64_t leeway, call.integer(3, 5));
  MILLRACE_ASSIGN(const TextRef text, string_subject(call));
  Budget& budget = call.budget();
  const auto ending = static_cast<std::int64_t>(end->characters());
  if (length < ending || leeway < 0) return call.error("the length or the leeway is too small");
  if (leeway > INT64_MAX - length ||
      static_cast<std::int64_t>(text->characters()) <= length + leeway)
    return Value(text);
  TextRef kept =
      slice(text, 0, text->byte_of(static_cast<std::size_t>(length - ending), budget), budget);
  if (!call.boolean(1, false)) {
    const std::size_t blank = kept->view().rfind(' ');
    if (blank != std::string_view::npos) kept = slice(kept, 0, blank, budget);
  }
  TextBuilder out(budget);
  out.append(*kept).append(*end);
  return out.finish();
}

// Runs of letters, digits and underscores.
ValueResult wordcount(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_ASSIGN(const TextRef text, subject(call));
  call.budget().work_bytes(text->size() * 8);
  std::int64_t words = 0;
  bool inside = false;
  for (std::string_view rest = text->view(); !rest.empty();) {
    const Character character = first_character(rest);
    const bool part =
        is_letter(character.code) || is_digit(character.code) || character.code == '_';
    words += part && !inside ? 1 : 0;
    inside = part;
    rest.remove_prefix(character.bytes);
  }
  return Value(words);
}

}  // namespace

std::span<const Builtin> text_filters() noexcept {
  static constexpr std::array table = {
      Builtin{"tojson", tojson},
      Builtin{"trim", trim},
      Builtin{"string", string_filter},
      Builtin{"safe", string_filter},  // nothing is escaped, so there is nothing to exempt
      Builtin{"upper", case_filter<Case::upper>},
      Builtin{"lower", case_filter<Case::lower>},
      Builtin{"capitalize", case_filter<Case::capitalized>},
      Builtin{"title", case_filter<Case::filter_titled>},
      Builtin{"replace", replace_filter},
      Builtin{"indent", indent},
      Builtin{"escape", escape},
      Builtin{"e", escape},
      Builtin{"forceescape", escape},
      Builtin{"format", format_filter},
      Builtin{"center", center},
      Builtin{"truncate", truncate},
      Builtin{"wordcount", wordcount},
  };
  return table;
}

}  // namespace millrace::jinja
