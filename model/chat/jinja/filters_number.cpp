// Filters on numbers.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "model/chat/jinja/builtins.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/text_operations.h"

namespace millrace::jinja {

namespace {

// Python's int(text, base) and float(text): blanks around, a sign, underscores between digits.
std::string number_text(std::string_view text) {
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between =
        text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_';
    if (!between) made.push_back(text[i]);
  }
  return made.starts_with('+') ? made.substr(1) : made;
}

bool parse_integer(std::string_view text, int base, std::int64_t& out) {
  std::string digits = number_text(text);
  const bool negative = digits.starts_with('-');
  std::size_t at = negative ? 1 : 0;
  if (digits.size() > at + 2 && digits[at] == '0') {
    const char mark = static_cast<char>(digits[at + 1] | 32);
    const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      digits.erase(at, 2);
      base = named;
    }
  }
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), out, base == 0 ? 10 : base);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() && !digits.empty();
}

bool parse_float(std::string_view text, double& out) {
  const std::string digits = number_text(text);
  if (digits.empty()) return false;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
}

bool fits_integer(double number) noexcept { return std::fabs(number) < 9.2e18; }

ValueResult int_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({"default", "base"}));
  MILLRACE_ASSIGN(const std::int64_t base, call.integer(1, 10));
  if (base != 0 && (base < 2 || base > 36)) return call.error("the base must be 0 or 2 to 36");
  if (call.self.is_undefined()) return call.error(undefined_message(call.self));
  std::int64_t number = 0;
  double real = 0;
  const Value fallback = call.given(0) ? call[0] : Value(std::int64_t{0});
  if (call.self.get_integer(number)) return Value(number);
  if (call.self.is_string()) {
    const TextRef text = strip(call.self.as_text(), nullptr, Side::both, call.budget());
    if (parse_integer(text->view(), static_cast<int>(base), number)) return Value(number);
    if (!parse_float(text->view(), real)) return fallback;
  } else if (!call.self.get_number(real)) {
    return fallback;
  }
  return fits_integer(real) ? Value(static_cast<std::int64_t>(real)) : fallback;
}

ValueResult float_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({"default"}));
  if (call.self.is_undefined()) return call.error(undefined_message(call.self));
  double number = 0;
  if (call.self.get_number(number)) return number;
  if (call.self.is_string()) {
    const TextRef text = strip(call.self.as_text(), nullptr, Side::both, call.budget());
    if (parse_float(text->view(), number)) return number;
  }
  return call.given(0) ? call[0] : Value(0.0);
}

ValueResult abs_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  std::int64_t integer = 0;
  if (call.self.get_integer(integer)) {
    if (integer >= 0) return Value(integer);
    return arithmetic(Operator::subtract, Value(std::int64_t{0}), Value(integer), call.heap());
  }
  double number = 0;
  if (!call.self.get_number(number))
    return call.error(fmt::format("needs a number, not a value of type {}", type_name(call.self)));
  return std::fabs(number);
}

ValueResult round_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({"precision", "method"}));
  MILLRACE_ASSIGN(const std::int64_t precision, call.integer(0, 0));
  MILLRACE_ASSIGN(const TextRef method, call.text(1, "common"));
  double number = 0;
  if (!call.self.get_number(number))
    return call.error(fmt::format("needs a number, not a value of type {}", type_name(call.self)));
  if (precision < -300 || precision > 300) return call.error("the precision is out of range");
  if (!std::isfinite(number)) return number;
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method->view() == "ceil") return std::ceil(number * scale) / scale;
  if (method->view() == "floor") return std::floor(number * scale) / scale;
  if (method->view() != "common") return call.error("the method is common, ceil or floor");
  // Rounding the decimal form is exact, as Python's is; half goes to even.
  if (precision < 0) return std::nearbyint(number * scale) / scale;
  double rounded = 0;
  parse_float(fmt::format("{:.{}f}", number, static_cast<int>(precision)), rounded);
  if (call.self.is(Kind::integer) || call.self.is(Kind::boolean)) {
    std::int64_t integer = 0;
    if (call.self.get_integer(integer)) return Value(integer);
  }
  return rounded;
}

}  // namespace

std::span<const Builtin> number_filters() noexcept {
  static constexpr std::array table = {
      Builtin{"int", int_filter},
      Builtin{"float", float_filter},
      Builtin{"abs", abs_filter},
      Builtin{"round", round_filter},
  };
  return table;
}

}  // namespace millrace::jinja
