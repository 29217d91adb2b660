// The texts behind fallback_templates(): ChatML and headers in fallback_sources.cpp, the formats
// with marks of their own in fallback_sources_marked.cpp.
#pragma once

#include <string>

namespace millrace {

std::string qwen2_source();
std::string qwen3_source();
std::string qwen3_thinking_source();  // of 2507: reasoning cannot be switched off
std::string qwen35_source();
std::string llama3_source();
std::string llama31_source();
std::string mistral_nemo_source();
std::string mistral_small_source();
std::string olmoe_source();

std::string deepseek_v3_source();
std::string deepseek_r1_source();
std::string deepseek_v31_source();
std::string deepseek_v4_source();
std::string kimi_source();
std::string harmony_source();
std::string glm45_source();
std::string glm47_source();
std::string minimax_source();

}  // namespace millrace
