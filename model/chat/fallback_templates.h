// Chat formats of the known families, for files without a template. Written for this program after
// the published formats; they are the tests of the renderer, too.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/format/checkpoint.h"

namespace millrace {

struct FallbackTemplate {
  const char* family;
  std::string (*source)();
};

std::span<const FallbackTemplate> fallback_templates() noexcept;
// By the family's name; null if there is none.
const FallbackTemplate* find_fallback_template(std::string_view family) noexcept;
// The family that a checkpoint's architecture, control tokens and names (of the model, of the file)
// clearly point to; null if none.
const FallbackTemplate* find_fallback_template(const Checkpoint& checkpoint);

}  // namespace millrace
