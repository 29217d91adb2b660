#include "model/arch/registry.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "runtime/base/log.h"

namespace millrace {

std::span<const FamilySpec* const> families() noexcept {
  static const std::array known = {
      &llama_family,     &qwen3moe_family,  &qwen2_family,   &qwen3_family,      &qwen2moe_family,
      &olmoe_family,     &gpt_oss_family,   &glm4moe_family, &minimax_m2_family, &deepseek2_family,
      &deepseek4_family, &qwen3next_family, &qwen35_family,  &qwen35moe_family};
  return known;
}

Result<const FamilySpec*> find_family(std::string_view architecture, std::string_view path) {
  if (architecture.empty())
    return Error{ErrorCode::format,
                 fmt::format("{}: metadata key general.architecture is missing", path)};
  std::string names;
  for (const FamilySpec* family : families()) {
    if (architecture == family->architecture) return family;
    names += names.empty() ? "" : ", ";
    names += family->architecture;
  }
  return Error{ErrorCode::unsupported,
               fmt::format("{}: architecture '{}' is not supported (known: {})", path,
                           printable(architecture), names)};
}

}  // namespace millrace
