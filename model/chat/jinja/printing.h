// Values as text: Python's str() and repr(), and JSON as json.dumps writes it. Foreign parts stay
// marked.
#pragma once

#include <optional>
#include <string>

#include "model/chat/jinja/value.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

// str(): what {{ value }} prints. Strings are returned as they are, undefined as "". An error for
// values that are nested too deeply.
Result<TextRef> to_text(const Value& value, Budget& budget);
// repr(): strings quoted.
Result<TextRef> represent(const Value& value, Budget& budget);

// Python's repr of a float: the shortest digits that read back as the same number.
std::string float_text(double value);

struct JsonStyle {
  bool ascii = false;                 // ensure_ascii
  std::optional<std::string> indent;  // one level of it; none: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// An error for values that JSON has no form for, or that are nested too deeply.
Result<TextRef> to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace millrace::jinja
