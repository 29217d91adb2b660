#include "tests/model/chat/conversation.h"

#include <catch2/catch.hpp>
#include <utility>

#include "model/chat/fallback_templates.h"

namespace millrace::testing {

ChatMessage message(std::string role, std::string content) {
  ChatMessage made;
  made.role = std::move(role);
  made.content = std::move(content);
  return made;
}

ChatMessage weather_call(std::string reasoning) {
  ChatMessage made = message("assistant", "");
  made.reasoning_content = std::move(reasoning);
  Json arguments = Json::object();
  arguments.set("city", "Paris");
  made.tool_calls.push_back({"abc123def", "get_weather", std::move(arguments)});
  return made;
}

ChatMessage weather_result() {
  ChatMessage made = message("tool", R"({"t":20})");
  made.tool_call_id = "abc123def";
  made.name = "get_weather";
  return made;
}

Json weather_tools() {
  auto parsed = Json::parse(
      R"([{"type": "function", "function": {"name": "get_weather", "description": "Get weather",)"
      R"( "parameters": {"type": "object", "properties": {"city": {"type": "string",)"
      R"( "description": "City name"}}, "required": ["city"]}}}])");
  REQUIRE(parsed.has_value());
  return *parsed;
}

ChatRequest four_turns() {
  ChatRequest request;
  request.messages = {message("system", "SYS"), message("user", "U1"), message("assistant", "A1"),
                      message("user", "U2")};
  request.now = jinja::Moment{2026, 8, 30, 14, 5, 9};
  return request;
}

ChatRequest running_call(std::string reasoning) {
  ChatRequest request;
  request.messages = {message("user", "U1"), weather_call(std::move(reasoning)), weather_result()};
  request.tools = weather_tools();
  request.now = jinja::Moment{2026, 8, 30, 14, 5, 9};
  return request;
}

ChatTemplate format_of(std::string_view family, std::string bos, std::string eos) {
  const FallbackTemplate* found = find_fallback_template(family);
  REQUIRE(found != nullptr);
  ChatTemplate::Sources sources;
  sources.name = "test";
  sources.plain = found->source();
  sources.bos = std::move(bos);
  sources.eos = std::move(eos);
  auto made = ChatTemplate::from_sources(sources);
  INFO((made ? std::string() : made.error().what));
  REQUIRE(made.has_value());
  return *std::move(made);
}

std::string rendered(const ChatTemplate& chat, const ChatRequest& request) {
  const auto made = chat.render(request);
  INFO((made ? std::string() : made.error().what));
  REQUIRE(made.has_value());
  return made->text;
}

}  // namespace millrace::testing
