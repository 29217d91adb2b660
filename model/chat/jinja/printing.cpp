#include "model/chat/jinja/printing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/chat/jinja/callable.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/statement.h"
#include "runtime/base/limits.h"

namespace millrace::jinja {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Shortest digits in scientific form, then laid out as Python does.
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  std::string sign;
  if (text[0] == '-') sign = "-";
  std::string digits = text.substr(sign.size(), e - sign.size());
  std::erase(digits, '.');
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (digits.size() > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

Error too_deep() {
  return Error{ErrorCode::format, fmt::format("a value is nested deeper than {} levels",
                                              limits::template_value_depth_max)};
}

// Appends the runs of `text` that need no escape as they are, and `escape(code)` for the others.
template <class Escape>
void append_escaped(TextBuilder& out, const Text& text, Escape escape) {
  const std::string_view bytes = text.view();
  std::size_t kept = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character character = first_character(bytes.substr(at));
    const std::string replacement = escape(character.code);
    if (!replacement.empty()) {
      out.append(text, kept, at).append_as(replacement, text, at);
      kept = at + character.bytes;
    }
    at += character.bytes;
  }
  out.append(text, kept, bytes.size());
}

std::string python_escape(char32_t code, char quote) {
  if (code == '\\') return "\\\\";
  if (code == static_cast<unsigned char>(quote)) return std::string("\\") + quote;
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (is_printable(code)) return {};
  const auto number = static_cast<std::uint32_t>(code);
  if (number < 0x100) return fmt::format("\\x{:02x}", number);
  if (number < 0x10000) return fmt::format("\\u{:04x}", number);
  return fmt::format("\\U{:08x}", number);
}

void represent_text(TextBuilder& out, const Text& text) {
  const bool has_single = text.view().find('\'') != std::string_view::npos;
  const bool has_double = text.view().find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  const std::string_view mark = quote == '"' ? "\"" : "'";
  out.append(mark);
  append_escaped(out, text, [quote](char32_t code) { return python_escape(code, quote); });
  out.append(mark);
}

class PythonPrinter {
 public:
  PythonPrinter(TextBuilder& out, Budget& budget) : out_(out), budget_(budget) {}

  Status print(const Value& value, unsigned depth = 0) {
    budget_.work(1);
    if (budget_.exhausted() || out_.overflowed()) return {};
    if (depth > limits::template_value_depth_max) return too_deep();
    switch (value.kind()) {
      case Kind::undefined:
        out_.append("Undefined");
        break;
      case Kind::none:
        out_.append("None");
        break;
      case Kind::boolean:
        out_.append(value.as_boolean() ? "True" : "False");
        break;
      case Kind::integer:
        out_.append(fmt::format("{}", value.as_integer()));
        break;
      case Kind::floating:
        out_.append(float_text(value.as_floating()));
        break;
      case Kind::string:
        represent_text(out_, *value.as_text());
        break;
      case Kind::sequence:
        return print_sequence(*value.as_sequence(), depth);
      case Kind::dict:
        return print_dict(*value.as_dict(), depth);
      case Kind::name_space:
        out_.append("<Namespace ");
        MILLRACE_TRY(print_dict(value.as_namespace()->attributes, depth));
        out_.append(">");
        break;
      case Kind::loop:
        out_.append(fmt::format("<LoopContext {}/{}>", value.as_loop()->index + 1,
                                value.as_loop()->items.size()));
        break;
      case Kind::callable:
        print_callable(*value.as_callable());
        break;
    }
    return {};
  }

 private:
  Status print_sequence(const Sequence& sequence, unsigned depth) {
    const auto& items = sequence.items;
    if (sequence.kind == SequenceKind::generator) {
      out_.append("<generator object>");
      return {};
    }
    const bool tuple = sequence.kind == SequenceKind::tuple;
    const bool view = sequence.kind == SequenceKind::view;
    out_.append(view ? "dict_view([" : tuple ? "(" : "[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out_.append(", ");
      MILLRACE_TRY(print(items[i], depth + 1));
      if (budget_.exhausted() || out_.overflowed()) return {};
    }
    if (tuple && items.size() == 1) out_.append(",");
    out_.append(view ? "])" : tuple ? ")" : "]");
    return {};
  }

  Status print_dict(const Dict& dict, unsigned depth) {
    out_.append("{");
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_.append(", ");
      first = false;
      MILLRACE_TRY(print(key, depth + 1));
      out_.append(": ");
      MILLRACE_TRY(print(value, depth + 1));
      if (budget_.exhausted() || out_.overflowed()) return {};
    }
    out_.append("}");
    return {};
  }

  void print_callable(const Callable& callable) {
    if (callable.macro != nullptr)
      out_.append("<Macro '").append(*callable.macro->name).append("'>");
    else out_.append(fmt::format("<function {}>", callable.builtin->name));
  }

  TextBuilder& out_;
  Budget& budget_;
};

std::string json_escape(char32_t code, bool ascii) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  const auto number = static_cast<std::uint32_t>(code);
  if (number < 0x20 || (ascii && number >= 0x7F && number < 0x10000 && number != 0x7F))
    return fmt::format("\\u{:04x}", number);
  if (ascii && number >= 0x10000)
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((number - 0x10000) >> 10U),
                       0xDC00 + ((number - 0x10000) & 0x3FFU));
  return {};
}

class JsonPrinter {
 public:
  JsonPrinter(TextBuilder& out, const JsonStyle& style, Budget& budget)
      : out_(out), style_(style), budget_(budget) {}

  Status print(const Value& value, unsigned depth = 0) {
    budget_.work(1);
    if (budget_.exhausted() || out_.overflowed()) return {};
    if (depth > limits::template_value_depth_max) return too_deep();
    if (value.is_string()) {
      print_text(*value.as_text());
      return {};
    }
    if (value.is(Kind::dict)) return print_dict(*value.as_dict(), depth);
    if (value.is(Kind::sequence) && (value.as_sequence()->kind == SequenceKind::list ||
                                     value.as_sequence()->kind == SequenceKind::tuple))
      return print_list(value.as_sequence()->items, depth);
    if (!value.is_none() && !value.is_number()) {
      if (value.is_undefined()) return Error{ErrorCode::format, undefined_message(value)};
      return Error{ErrorCode::format,
                   fmt::format("a value of type {} has no form in JSON", type_name(value))};
    }
    out_.append(scalar(value));
    return {};
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is(Kind::boolean)) return value.as_boolean() ? "true" : "false";
    if (value.is(Kind::integer)) return fmt::format("{}", value.as_integer());
    const double number = value.as_floating();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  void print_text(const Text& text) {
    out_.append("\"");
    append_escaped(out_, text, [this](char32_t code) { return json_escape(code, style_.ascii); });
    out_.append("\"");
  }

  // What comes before an item or a closing bracket.
  void break_line(unsigned depth) {
    if (!style_.indent) return;
    out_.append("\n");
    for (unsigned i = 0; i < depth; ++i) out_.append(*style_.indent);
  }

  Status print_list(const std::vector<Value>& items, unsigned depth) {
    out_.append("[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out_.append(style_.item_separator);
      break_line(depth + 1);
      MILLRACE_TRY(print(items[i], depth + 1));
      if (budget_.exhausted() || out_.overflowed()) return {};
    }
    if (!items.empty()) break_line(depth);
    out_.append("]");
    return {};
  }

  Status print_dict(const Dict& dict, unsigned depth) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      for (const auto* entry : entries)
        if (!entry->first.is_string())
          return Error{ErrorCode::format, "keys that are no strings cannot be sorted"};
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return a->first.view() < b->first.view();
      });
    }
    out_.append("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i != 0) out_.append(style_.item_separator);
      break_line(depth + 1);
      const Value& key = entries[i]->first;
      if (key.is_string()) print_text(*key.as_text());
      else out_.append("\"" + scalar(key) + "\"");
      out_.append(style_.key_separator);
      MILLRACE_TRY(print(entries[i]->second, depth + 1));
      if (budget_.exhausted() || out_.overflowed()) return {};
    }
    if (!entries.empty()) break_line(depth);
    out_.append("}");
    return {};
  }

  TextBuilder& out_;
  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

Result<TextRef> to_text(const Value& value, Budget& budget) {
  if (value.is_string()) return value.as_text();
  if (value.is_undefined()) return make_text("");
  return represent(value, budget);
}

Result<TextRef> represent(const Value& value, Budget& budget) {
  TextBuilder out(budget);
  MILLRACE_TRY(PythonPrinter(out, budget).print(value));
  return out.finish();
}

Result<TextRef> to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  TextBuilder out(budget);
  MILLRACE_TRY(JsonPrinter(out, style, budget).print(value));
  return out.finish();
}

}  // namespace millrace::jinja
