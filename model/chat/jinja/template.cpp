#include "model/chat/jinja/template.h"

#include <fmt/format.h>

#include "model/chat/jinja/interpreter.h"
#include "model/chat/jinja/parser.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace millrace::jinja {

namespace {

// Values of a rendering from the caller's JSON. Its depth is bounded by the JSON parser; values
// that were built otherwise are checked here.
ValueResult from_json(const Json& json, bool foreign, Heap& heap, unsigned depth = 0) {
  if (depth > limits::template_value_depth_max)
    return Error{ErrorCode::usage, fmt::format("a value is nested deeper than {} levels",
                                               limits::template_value_depth_max)};
  std::int64_t integer = 0;
  double number = 0;
  if (json.is_null()) return Value::none();
  if (const bool* value = json.as_bool()) return *value;
  if (const std::string* text = json.as_string())
    return heap.text(utf8_replace_invalid(*text), foreign);
  if (json.get_integer(integer)) return Value(integer);
  if (json.get_number(number)) return number;
  if (const Json::Array* array = json.as_array()) {
    std::vector<Value> items;
    items.reserve(array->size());
    for (const Json& item : *array) {
      MILLRACE_ASSIGN(Value value, from_json(item, foreign, heap, depth + 1));
      items.push_back(std::move(value));
    }
    return heap.sequence(SequenceKind::list, std::move(items));
  }
  Dict* dict = heap.dict();
  if (const Json::Object* object = json.as_object()) {
    for (const auto& [key, item] : *object) {
      MILLRACE_ASSIGN(Value value, from_json(item, foreign, heap, depth + 1));
      heap.set(*dict, heap.text(utf8_replace_invalid(key), foreign), std::move(value));
    }
  }
  return dict;
}

}  // namespace

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > limits::template_bytes_max)
    return Error{ErrorCode::format, fmt::format("{} bytes of template, at most {} are read",
                                                source.size(), limits::template_bytes_max)};
  MILLRACE_ASSIGN(Program program, jinja::parse(utf8_replace_invalid(source)));
  return Template(std::make_shared<const Program>(std::move(program)));
}

Result<Rendered> Template::render(const RenderOptions& options) const {
  Budget budget(options.steps_max);  // outlives what is accounted to it
  Heap heap(budget);
  Interpreter interpreter(*program_, heap, options.now);
  for (const Variable& variable : options.variables) {
    MILLRACE_ASSIGN(Value value, from_json(variable.value, variable.foreign, heap));
    interpreter.define(variable.name, std::move(value));
  }
  MILLRACE_ASSIGN(const TextRef text, interpreter.run());
  return Rendered{text->bytes(), text->foreign()};
}

}  // namespace millrace::jinja
