// A template of the Jinja2 language as chat templates use it: the door of this folder. Sandboxed:
// it sees the variables it is given and nothing else, and bounded: whatever it does, rendering ends
// after RenderOptions::steps_max steps and within limits::template_memory_bytes_max bytes.
// Immutable once parsed; any number of threads may render it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/result.h"
#include "runtime/base/text_range.h"

namespace millrace::jinja {

struct Program;

// A point in time, as the caller wants it shown; strftime_now() gives no other.
struct Moment {
  int year = 1970;
  int month = 1;  // from 1
  int day = 1;
  int hour = 0;
  int minute = 0;
  int second = 0;
};

// A variable of a rendering. Strings of foreign variables are marked in the output.
struct Variable {
  std::string name;
  Json value;
  bool foreign = true;
};

struct RenderOptions {
  std::vector<Variable> variables;
  std::optional<Moment> now;  // none: strftime_now is not defined
  std::uint64_t steps_max = limits::template_steps_max;
};

struct Rendered {
  std::string text;  // valid UTF-8
  // Where the text comes from foreign variables: ascending, not touching.
  std::vector<TextRange> foreign;
};

class Template {
 public:
  // `format` errors say "line N: …", with nothing from the source that a terminal would obey.
  static Result<Template> parse(std::string_view source);

  // `format` errors for what the template does wrong; `usage` errors are those that it raises
  // itself about the conversation (raise_exception).
  Result<Rendered> render(const RenderOptions& options) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace millrace::jinja
