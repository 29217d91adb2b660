#include "model/chat/jinja/formatting.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>

#include "model/chat/jinja/printing.h"
#include "runtime/base/log.h"

namespace millrace::jinja {

namespace {

constexpr std::size_t width_max = 4096;

struct Specification {
  std::string flags;
  std::size_t width = 0;
  int precision = -1;
  char kind = 's';
};

bool read_number(std::string_view text, std::size_t& at, std::size_t& out) {
  const auto parsed = std::from_chars(text.data() + at, text.data() + text.size(), out);
  if (parsed.ec == std::errc::result_out_of_range || out > width_max) return false;
  at = static_cast<std::size_t>(parsed.ptr - text.data());
  return true;
}

// What follows a '%' at `at`.
Result<Specification> read_specification(std::string_view text, std::size_t& at) {
  const Error malformed{ErrorCode::format, "a % format is malformed"};
  Specification made;
  while (at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos)
    made.flags.push_back(text[at++]);
  if (made.flags.size() > 8 || !read_number(text, at, made.width)) return malformed;
  if (at < text.size() && text[at] == '.') {
    ++at;
    std::size_t precision = 0;
    if (!read_number(text, at, precision) || precision > 400) return malformed;
    made.precision = static_cast<int>(precision);
  }
  if (at >= text.size()) return malformed;
  made.kind = text[at++];
  return made;
}

void pad(TextBuilder& out, const Specification& spec, const Text& text) {
  const std::string blanks(spec.width > text.characters() ? spec.width - text.characters() : 0,
                           ' ');
  const bool left = spec.flags.find('-') != std::string::npos;
  if (!left) out.append(blanks);
  out.append(text);
  if (left) out.append(blanks);
}

Status append_text(TextBuilder& out, const Specification& spec, const Value& value,
                   Budget& budget) {
  MILLRACE_ASSIGN(TextRef text,
                  spec.kind == 's' ? to_text(value, budget) : represent(value, budget));
  if (spec.precision >= 0 && static_cast<std::size_t>(spec.precision) < text->characters())
    text = slice(text, 0, text->byte_of(static_cast<std::size_t>(spec.precision), budget), budget);
  pad(out, spec, *text);
  return {};
}

Status append_number(TextBuilder& out, const Specification& spec, const Value& value,
                     Budget& budget) {
  double number = 0;
  std::int64_t integer = 0;
  if (!value.get_number(number))
    return Error{ErrorCode::format, fmt::format("%{} needs a number, not a value of type {}",
                                                spec.kind, type_name(value))};
  if (!value.get_integer(integer)) {
    if (!(std::fabs(number) < 9.0e18) &&
        std::string_view("diu").find(spec.kind) != std::string_view::npos)
      return Error{ErrorCode::format, "a number is too large for %d"};
    integer = std::fabs(number) < 9.0e18 ? static_cast<std::int64_t>(number) : 0;
  }
  const auto width = static_cast<int>(spec.width);
  std::string buffer(width_max + 1024, '\0');
  int written = 0;
  if (std::string_view("eEfFgG").find(spec.kind) != std::string_view::npos) {
    const std::string pattern = "%" + spec.flags + "*.*" + spec.kind;
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    written =
        std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), width, precision, number);
  } else {
    const char kind = spec.kind == 'i' || spec.kind == 'u' ? 'd' : spec.kind;
    const bool negative = integer < 0 && kind != 'd';
    const std::string pattern = "%" + spec.flags + "*l" + kind;
    if (negative) return Error{ErrorCode::format, "a negative number in %x or %o"};
    written = std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), width,
                            static_cast<long>(integer));
  }
  MILLRACE_CHECK(written >= 0);
  buffer.resize(std::min(static_cast<std::size_t>(written), buffer.size()));
  budget.work_bytes(buffer.size());
  out.append(buffer);
  return {};
}

}  // namespace

ValueResult percent_format(const TextRef& text, const std::vector<Value>& values, Budget& budget) {
  TextBuilder out(budget);
  const std::string_view bytes = text->view();
  std::size_t next = 0;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.append(*text, at, percent);
    at = percent;
    if (at == bytes.size()) break;
    ++at;
    MILLRACE_ASSIGN(const Specification spec, read_specification(bytes, at));
    if (spec.kind == '%') {
      out.append("%");
      continue;
    }
    if (next == values.size()) return Error{ErrorCode::format, "a % format has too few values"};
    const Value& value = values[next++];
    if (spec.kind == 's' || spec.kind == 'r') MILLRACE_TRY(append_text(out, spec, value, budget));
    else if (std::string_view("diuxXoeEfFgG").find(spec.kind) != std::string_view::npos)
      MILLRACE_TRY(append_number(out, spec, value, budget));
    else
      return Error{ErrorCode::format,
                   fmt::format("unknown format %{}", printable(std::string(1, spec.kind)))};
    if (budget.exhausted() || out.overflowed()) break;
  }
  if (next < values.size() && !budget.exhausted() && !out.overflowed() &&
      !(values.size() == 1 && (values[0].is(Kind::dict) || values[0].is(Kind::sequence))))
    return Error{ErrorCode::format, "a % format has too many values"};
  return out.finish();
}

namespace {

// The value that a replacement field names.
ValueResult field_value(std::string_view field, std::size_t& automatic,
                        const std::vector<Value>& positional,
                        const std::vector<std::pair<std::string, Value>>& keywords) {
  if (field.find_first_of(":!.[") != std::string_view::npos)
    return Error{ErrorCode::format,
                 fmt::format("the format field {{{}}} is not supported", printable(field, 40))};
  std::size_t index = automatic;
  if (field.empty()) {
    ++automatic;
  } else {
    const auto parsed = std::from_chars(field.data(), field.data() + field.size(), index);
    if (parsed.ec != std::errc() || parsed.ptr != field.data() + field.size()) {
      for (const auto& [name, value] : keywords)
        if (name == field) return value;
      index = positional.size();
    }
  }
  if (index < positional.size()) return positional[index];
  return Error{ErrorCode::format,
               fmt::format("no value for the format field {{{}}}", printable(field, 40))};
}

}  // namespace

ValueResult brace_format(const TextRef& text, const std::vector<Value>& positional,
                         const std::vector<std::pair<std::string, Value>>& keywords,
                         Budget& budget) {
  TextBuilder out(budget);
  const std::string_view bytes = text->view();
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(*text, at, brace);
    at = brace;
    if (at == bytes.size()) break;
    if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {
      out.append(*text, at, at + 1);
      at += 2;
      continue;
    }
    const std::size_t end = bytes[at] == '{' ? bytes.find('}', at) : std::string_view::npos;
    if (end == std::string_view::npos)
      return Error{ErrorCode::format, "a brace in a format stands alone"};
    MILLRACE_ASSIGN(const Value value, field_value(bytes.substr(at + 1, end - at - 1), automatic,
                                                   positional, keywords));
    MILLRACE_ASSIGN(const TextRef shown, to_text(value, budget));
    out.append(*shown);
    if (budget.exhausted() || out.overflowed()) break;
    at = end + 1;
  }
  return out.finish();
}

}  // namespace millrace::jinja
