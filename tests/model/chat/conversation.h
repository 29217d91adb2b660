// Conversations for tests of chat formats, as the formats' descriptions use them.
#pragma once

#include <string>
#include <string_view>

#include "model/chat/chat_message.h"
#include "model/chat/chat_template.h"

namespace millrace::testing {

ChatMessage message(std::string role, std::string content);
// An assistant's call of get_weather(city: "Paris"), without text unless some is given.
ChatMessage weather_call(std::string reasoning = {});
// Its result: {"t":20}
ChatMessage weather_result();
// The declaration of get_weather.
Json weather_tools();

// system SYS, user U1, assistant A1, user U2.
ChatRequest four_turns();
// user U1, a call, its result; with the tools.
ChatRequest running_call(std::string reasoning = {});

// One of the built-in formats, with its BOS and EOS texts; fails the test if there is none.
ChatTemplate format_of(std::string_view family, std::string bos = "<BOS>",
                       std::string eos = "<EOS>");
// Fails the test on an error.
std::string rendered(const ChatTemplate& chat, const ChatRequest& request);

}  // namespace millrace::testing
