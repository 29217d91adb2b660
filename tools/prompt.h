// A user's text as the model's tokens.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/engine.h"

namespace millrace::tools {

// With the model's begin token, without the end token that would end the text before it begins.
Status encode_prompt(const Engine& engine, const std::string& text, std::vector<TokenId>& ids);

}  // namespace millrace::tools
