#include "tools/prompt.h"

namespace millrace::tools {

Status encode_prompt(const Engine& engine, const std::string& text, std::vector<TokenId>& ids) {
  MILLRACE_ASSIGN(ids,
                  engine.tokenizer().encode(text, {.parse_special = false, .add_bos_eos = true}));
  const auto& special = engine.tokenizer().special();
  if (special.add_eos && special.eos && ids.size() > 1 && ids.back() == *special.eos)
    ids.pop_back();
  return {};
}

}  // namespace millrace::tools
