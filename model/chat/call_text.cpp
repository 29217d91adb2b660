#include "model/chat/call_text.h"

#include <algorithm>
#include <string>

namespace millrace {

namespace {

using Calls = std::optional<std::vector<ToolCall>>;
constexpr std::size_t nowhere = std::string_view::npos;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == nowhere) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Takes the text up to `mark` and the mark itself off the front; false if there is no such mark.
bool take_until(std::string_view& rest, std::string_view mark, std::string_view& taken) {
  const std::size_t at = rest.find(mark);
  if (at == nowhere) return false;
  taken = rest.substr(0, at);
  rest.remove_prefix(at + mark.size());
  return true;
}

// One newline at either end belongs to the markup, not to the value.
std::string_view without_line_ends(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// The declared type of a parameter; empty if it is not declared.
std::string declared_type(const Json& tools, std::string_view function, std::string_view key) {
  const Json::Array* list = tools.as_array();
  if (list == nullptr) return {};
  for (const Json& tool : *list) {
    const Json* inner = tool.find("function");
    const Json* name = inner == nullptr ? nullptr : inner->find("name");
    if (name == nullptr || name->as_string() == nullptr || *name->as_string() != function) continue;
    const Json* found = inner;
    for (const std::string_view step :
         {std::string_view("parameters"), std::string_view("properties"), key,
          std::string_view("type")})
      found = found == nullptr ? nullptr : found->find(step);
    if (found != nullptr && found->as_string() != nullptr) return *found->as_string();
  }
  return {};
}

// A value as the markup has it: text where text is declared, else JSON if it is some.
Json typed_value(std::string_view text, const std::string& type) {
  if (type == "string") return text;
  auto parsed = Json::parse(text);
  if (!parsed) return text;
  // Undeclared words in quotes may be meant with their quotes; numbers and lists are not texts.
  return type.empty() && parsed->as_string() != nullptr ? Json(text) : *std::move(parsed);
}

Calls one(std::optional<ToolCall> call) {
  if (!call) return std::nullopt;
  return std::vector<ToolCall>{*std::move(call)};
}

std::optional<ToolCall> json_arguments(std::string_view name, std::string_view id,
                                       std::string_view arguments) {
  auto parsed = Json::parse(trimmed(arguments));
  if (!parsed || parsed->as_object() == nullptr || trimmed(name).empty()) return std::nullopt;
  return ToolCall{std::string(id), std::string(trimmed(name)), *std::move(parsed)};
}

// <function=NAME> <parameter=KEY> VALUE </parameter> … </function>
Calls function_tags(std::string_view rest, const Json& tools) {
  std::vector<ToolCall> calls;
  std::string_view skipped;
  while (take_until(rest, "<function=", skipped)) {
    std::string_view name;
    std::string_view body;
    if (!take_until(rest, ">", name)) return std::nullopt;
    if (!take_until(rest, "</function>", body)) return std::nullopt;
    ToolCall call{"", std::string(trimmed(name)), Json::object()};
    while (take_until(body, "<parameter=", skipped)) {
      std::string_view key;
      std::string_view value;
      if (!take_until(body, ">", key) || !take_until(body, "</parameter>", value))
        return std::nullopt;
      call.arguments.set(std::string(key), typed_value(without_line_ends(value),
                                                       declared_type(tools, call.name, key)));
    }
    calls.push_back(std::move(call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

// NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> …
Calls arg_tags(std::string_view rest, const Json& tools) {
  const std::string_view name = trimmed(rest.substr(0, rest.find("<arg_key>")));
  // Nothing but the name says that this is a call, so it must look like one.
  constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/";
  if (name.empty() || name.find_first_not_of(letters) != nowhere) return std::nullopt;
  ToolCall call{"", std::string(name), Json::object()};
  std::string_view skipped;
  while (take_until(rest, "<arg_key>", skipped)) {
    std::string_view key;
    std::string_view value;
    if (!take_until(rest, "</arg_key>", key) || !take_until(rest, "<arg_value>", skipped) ||
        !take_until(rest, "</arg_value>", value))
      return std::nullopt;
    call.arguments.set(std::string(trimmed(key)),
                       typed_value(value, declared_type(tools, call.name, trimmed(key))));
  }
  return one(std::move(call));
}

// The value of `name="…"` in the attributes of a tag; empty if it is absent.
std::string_view attribute(std::string_view tag, std::string_view name) {
  std::string_view skipped;
  std::string_view value;
  const std::string start = std::string(name) + "=\"";
  if (!take_until(tag, start, skipped) || !take_until(tag, "\"", value)) return {};
  return value;
}

// <invoke name="NAME"> <parameter name="KEY">VALUE</parameter> … </invoke>; `mark` before each
// name of a tag.
Calls invoke_tags(std::string_view rest, std::string_view mark, const Json& tools) {
  const std::string prefix(mark);
  std::vector<ToolCall> calls;
  std::string_view skipped;
  while (take_until(rest, "<" + prefix + "invoke ", skipped)) {
    std::string_view tag;
    std::string_view body;
    if (!take_until(rest, ">", tag) || !take_until(rest, "</" + prefix + "invoke>", body))
      return std::nullopt;
    ToolCall call{"", std::string(attribute(tag, "name")), Json::object()};
    if (call.name.empty()) return std::nullopt;
    while (take_until(body, "<" + prefix + "parameter ", skipped)) {
      std::string_view value;
      if (!take_until(body, ">", tag) || !take_until(body, "</" + prefix + "parameter>", value))
        return std::nullopt;
      const std::string_view key = attribute(tag, "name");
      const std::string_view is_string = attribute(tag, "string");
      std::string type = is_string == "true" ? "string" : declared_type(tools, call.name, key);
      if (is_string == "false" && type == "string") type = "any";
      call.arguments.set(std::string(key), typed_value(value, type));
    }
    calls.push_back(std::move(call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

// <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜> …, or, in R1 and V3, "function" in
// the place of the name and "NAME⏎```json⏎{…}⏎```" behind it.
Calls deepseek(std::string_view rest) {
  std::vector<ToolCall> calls;
  std::string_view skipped;
  while (take_until(rest, "<｜tool▁call▁begin｜>", skipped)) {
    std::string_view name;
    std::string_view arguments;
    if (!take_until(rest, "<｜tool▁sep｜>", name)) return std::nullopt;
    if (!take_until(rest, "<｜tool▁call▁end｜>", arguments)) return std::nullopt;
    const std::size_t fence = arguments.find("```json");
    if (trimmed(name) == "function" && fence != nowhere) {
      name = arguments.substr(0, fence);
      arguments.remove_prefix(fence + 7);
      arguments = arguments.substr(0, arguments.rfind("```"));
    }
    auto call = json_arguments(name, "", arguments);
    if (!call) return std::nullopt;
    calls.push_back(*std::move(call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

// <|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{…}<|tool_call_end|> …
Calls kimi(std::string_view rest) {
  std::vector<ToolCall> calls;
  std::string_view skipped;
  while (take_until(rest, "<|tool_call_begin|>", skipped)) {
    std::string_view id;
    std::string_view arguments;
    if (!take_until(rest, "<|tool_call_argument_begin|>", id)) return std::nullopt;
    if (!take_until(rest, "<|tool_call_end|>", arguments)) return std::nullopt;
    id = trimmed(id);
    std::string_view name = id.substr(0, id.rfind(':'));
    if (name.starts_with("functions.")) name.remove_prefix(10);
    auto call = json_arguments(name, id, arguments);
    if (!call) return std::nullopt;
    calls.push_back(*std::move(call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

// [{"name": …, "arguments": {…}, "id": …}, …], or NAME[CALL_ID]ID[ARGS]{…}[TOOL_CALLS]NAME…
Calls mistral(std::string_view rest) {
  std::vector<ToolCall> calls;
  if (trimmed(rest).starts_with('[')) {
    const auto parsed = Json::parse(trimmed(rest));
    const Json::Array* list = parsed ? parsed->as_array() : nullptr;
    if (list == nullptr) return std::nullopt;
    for (const Json& entry : *list) {
      auto call = parse_json_call(entry.dump());
      if (!call) return std::nullopt;
      calls.push_back(*std::move(call));
    }
  }
  while (calls.empty() || !rest.empty()) {
    if (trimmed(rest).starts_with('[')) break;  // the list, done above
    std::string_view name;
    const std::size_t next = std::min(rest.find("[TOOL_CALLS]"), rest.size());
    std::string_view part = rest.substr(0, next);
    rest.remove_prefix(std::min(next + 12, rest.size()));
    if (!take_until(part, "[ARGS]", name)) return std::nullopt;
    std::string_view id;
    if (const std::size_t at = name.find("[CALL_ID]"); at != nowhere) {
      id = trimmed(name.substr(at + 9));
      name = name.substr(0, at);
    }
    auto call = json_arguments(name, id, part);
    if (!call) return std::nullopt;
    calls.push_back(*std::move(call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace

std::optional<ToolCall> parse_json_call(std::string_view text) {
  const auto parsed = Json::parse(trimmed(text));
  if (!parsed) return std::nullopt;
  const Json* name = parsed->find("name");
  const Json* arguments = parsed->find("arguments");
  if (arguments == nullptr) arguments = parsed->find("parameters");
  if (name == nullptr || name->as_string() == nullptr || arguments == nullptr) return std::nullopt;
  if (arguments->as_object() == nullptr && arguments->as_string() == nullptr) return std::nullopt;
  const Json* id = parsed->find("id");
  return ToolCall{id != nullptr && id->as_string() != nullptr ? *id->as_string() : std::string(),
                  *name->as_string(), *arguments};
}

std::optional<std::vector<ToolCall>> parse_calls(std::string_view block, CallSyntax syntax,
                                                 const Json& tools) {
  switch (syntax) {
    case CallSyntax::json:
    case CallSyntax::bare_json:
      return one(parse_json_call(block));
    case CallSyntax::function_tags:
      return function_tags(block, tools);
    case CallSyntax::arg_tags:
      return arg_tags(block, tools);
    case CallSyntax::invoke_tags:
      return invoke_tags(block, "", tools);
    case CallSyntax::dsml:
      return invoke_tags(block, "｜DSML｜", tools);
    case CallSyntax::deepseek:
      return deepseek(block);
    case CallSyntax::kimi:
      return kimi(block);
    case CallSyntax::mistral:
      return mistral(block);
    case CallSyntax::harmony:
    case CallSyntax::none:
      break;
  }
  return std::nullopt;
}

}  // namespace millrace
