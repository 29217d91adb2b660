#include "model/chat/template_features.h"

#include <fmt/format.h>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

// JSON as Python's json.dumps writes it, which is what models were trained on.
void dump_python(const Json& value, std::string& out) {
  if (const Json::Array* array = value.as_array()) {
    out += "[";
    for (std::size_t i = 0; i < array->size(); ++i) {
      if (i != 0) out += ", ";
      dump_python((*array)[i], out);
    }
    out += "]";
  } else if (const Json::Object* object = value.as_object()) {
    out += "{";
    for (std::size_t i = 0; i < object->size(); ++i) {
      if (i != 0) out += ", ";
      out += Json((*object)[i].first).dump() + ": ";
      dump_python((*object)[i].second, out);
    }
    out += "}";
  } else {
    out += value.dump();
  }
}

// The arguments of a call as the template wants them.
Json shape_arguments(const Json& arguments, bool as_text) {
  const std::string* text = arguments.as_string();
  if (as_text) {
    if (text != nullptr) return arguments;
    std::string dumped;
    dump_python(arguments.is_null() ? Json::object() : arguments, dumped);
    return dumped;
  }
  if (text == nullptr) return arguments.is_null() ? Json::object() : arguments;
  auto parsed = Json::parse(*text);
  // Not JSON: a model wrote it so, and the template may still show it as it is.
  return parsed && parsed->as_object() != nullptr ? *parsed : arguments;
}

Result<Json> shape_content(const ChatMessage& message, bool as_parts) {
  const Json::Array* parts = message.content.as_array();
  if (parts == nullptr) {
    if (!as_parts || message.content.as_string() == nullptr) return message.content;
    Json part = Json::object();
    part.set("type", "text").set("text", message.content);
    return Json::array().push(std::move(part));
  }
  std::string text;
  for (const Json& part : *parts) {
    const Json* kind = part.find("type");
    const Json* shown = part.find("text");
    if (kind == nullptr || kind->as_string() == nullptr || *kind->as_string() != "text" ||
        shown == nullptr || shown->as_string() == nullptr)
      return Error{ErrorCode::usage,
                   fmt::format("a message with the role {} has a part that is no text; only text "
                               "is supported",
                               printable(message.role, 40))};
    text += *shown->as_string();
  }
  return as_parts ? message.content : Json(std::move(text));
}

Result<Json> message_json(const ChatMessage& message, const TemplateFeatures& features) {
  Json made = Json::object();
  made.set("role", message.role);
  MILLRACE_ASSIGN(Json content, shape_content(message, features.content_as_parts));
  made.set("content", std::move(content));
  if (!message.reasoning_content.empty()) {
    made.set("reasoning_content", message.reasoning_content);
    made.set("thinking", message.reasoning_content);  // as gpt-oss calls it
  }
  if (!message.tool_calls.empty()) {
    Json calls = Json::array();
    for (const ToolCall& call : message.tool_calls) {
      Json function = Json::object();
      function.set("name", call.name);
      function.set("arguments", shape_arguments(call.arguments, features.arguments_as_text));
      Json entry = Json::object();
      if (!call.id.empty()) entry.set("id", call.id);
      entry.set("type", "function").set("function", std::move(function));
      calls.push(std::move(entry));
    }
    made.set("tool_calls", std::move(calls));
  }
  if (!message.tool_call_id.empty()) made.set("tool_call_id", message.tool_call_id);
  if (!message.name.empty()) made.set("name", message.name);
  return made;
}

}  // namespace

Result<std::vector<jinja::Variable>> template_variables(const ChatRequest& request,
                                                        const TemplateFeatures& features,
                                                        const std::string& bos,
                                                        const std::string& eos) {
  std::vector<jinja::Variable> variables;
  const auto add = [&](std::string name, Json value, bool foreign) {
    variables.push_back({std::move(name), std::move(value), foreign});
  };
  Json messages = Json::array();
  for (const ChatMessage& message : request.messages) {
    MILLRACE_ASSIGN(Json shaped, message_json(message, features));
    messages.push(std::move(shaped));
  }
  if (const Json::Object* more = request.variables.as_object())
    for (const auto& [name, value] : *more) add(name, value, true);
  // The others come later and win.
  add("messages", std::move(messages), true);
  if (!request.tools.is_null()) add("tools", request.tools, true);
  add("add_generation_prompt", request.add_generation_prompt, false);
  add("bos_token", bos, false);
  add("eos_token", eos, false);
  if (request.enable_thinking) {
    add("enable_thinking", *request.enable_thinking, false);
    add("thinking", *request.enable_thinking, false);  // as DeepSeek calls it
  }
  if (!request.reasoning_effort.empty()) add("reasoning_effort", request.reasoning_effort, true);
  return variables;
}

namespace {

// Words that no template contains by itself.
constexpr const char* user_word = "probe-user-3bd1";
constexpr const char* value_word = "probe-value-77ac";
constexpr const char* tool_word = "probe_tool_58e0";

Json probe_tools() {
  Json city = Json::object();
  city.set("type", "string").set("description", "a word");
  Json properties = Json::object();
  properties.set("word", std::move(city));
  Json parameters = Json::object();
  parameters.set("type", "object").set("properties", std::move(properties));
  parameters.set("required", Json::array().push("word"));
  Json function = Json::object();
  function.set("name", tool_word).set("description", "a probe");
  function.set("parameters", std::move(parameters));
  Json tool = Json::object();
  tool.set("type", "function").set("function", std::move(function));
  return Json::array().push(std::move(tool));
}

ChatRequest plain_conversation() {
  ChatRequest request;
  ChatMessage user;
  user.role = "user";
  user.content = user_word;
  request.messages.push_back(user);
  request.now = jinja::Moment{};
  return request;
}

ChatRequest call_conversation() {
  ChatRequest request = plain_conversation();
  ChatMessage assistant;
  assistant.role = "assistant";
  Json arguments = Json::object();
  arguments.set("word", value_word);
  assistant.tool_calls.push_back({"abc123def", "probe_tool", std::move(arguments)});
  ChatMessage result;
  result.role = "tool";
  result.content = "ok";
  result.tool_call_id = "abc123def";
  result.name = "probe_tool";
  request.messages.push_back(assistant);
  request.messages.push_back(result);
  request.tools = probe_tools();
  return request;
}

class Probe {
 public:
  Probe(const jinja::Template& program, const std::string& bos, const std::string& eos)
      : program_(program), bos_(bos), eos_(eos) {}

  // Whether a rendering succeeds and shows the word.
  bool shows(const ChatRequest& request, const TemplateFeatures& features,
             const std::string& word) const {
    auto variables = template_variables(request, features, bos_, eos_);
    if (!variables) return false;
    jinja::RenderOptions options;
    options.variables = *std::move(variables);
    options.now = request.now;
    options.steps_max = limits::template_probe_steps_max;
    const auto rendered = program_.render(options);
    return rendered && rendered->text.find(word) != std::string::npos;
  }

 private:
  const jinja::Template& program_;
  const std::string& bos_;
  const std::string& eos_;
};

}  // namespace

TemplateFeatures probe_template(const jinja::Template& program, const std::string& bos,
                                const std::string& eos) {
  const Probe probe(program, bos, eos);
  TemplateFeatures features;
  const ChatRequest plain = plain_conversation();
  if (!probe.shows(plain, features, user_word)) {
    TemplateFeatures as_parts;
    as_parts.content_as_parts = true;
    features.content_as_parts = probe.shows(plain, as_parts, user_word);
  }
  ChatRequest with_tools = plain;
  with_tools.tools = probe_tools();
  features.tools = probe.shows(with_tools, features, tool_word);

  // Some templates refuse a call without text beside it, others one with it.
  const std::string quoted = fmt::format("\"{}\"", value_word);
  ChatRequest calls = call_conversation();
  for (const bool with_text : {false, true}) {
    if (with_text) calls.messages[1].content = "text";
    TemplateFeatures as_text = features;
    as_text.arguments_as_text = true;
    // An object that is printed as Python prints dicts shows the word, but not as JSON.
    const bool object_shown = probe.shows(calls, features, value_word);
    if (object_shown && !probe.shows(calls, features, fmt::format("'{}'", value_word))) break;
    if (!probe.shows(calls, as_text, quoted)) continue;
    features.arguments_as_text = true;
    break;
  }
  return features;
}

}  // namespace millrace
