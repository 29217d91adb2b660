// Which families there are. Static data, any thread.
#pragma once

#include <span>
#include <string_view>

#include "model/arch/family.h"
#include "runtime/base/result.h"

namespace millrace {

extern const FamilySpec llama_family;
extern const FamilySpec qwen3moe_family;
extern const FamilySpec qwen2_family;
extern const FamilySpec qwen3_family;
extern const FamilySpec qwen2moe_family;
extern const FamilySpec olmoe_family;
extern const FamilySpec gpt_oss_family;
extern const FamilySpec glm4moe_family;
extern const FamilySpec minimax_m2_family;
extern const FamilySpec deepseek2_family;
extern const FamilySpec deepseek4_family;
extern const FamilySpec qwen3next_family;
extern const FamilySpec qwen35_family;
extern const FamilySpec qwen35moe_family;

std::span<const FamilySpec* const> families() noexcept;

// `unsupported` when the name is unknown; the message lists what is known. `path` is for the
// message.
Result<const FamilySpec*> find_family(std::string_view architecture, std::string_view path);

}  // namespace millrace
