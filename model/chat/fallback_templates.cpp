#include "model/chat/fallback_templates.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "model/chat/fallback_sources.h"

namespace millrace {

std::span<const FallbackTemplate> fallback_templates() noexcept {
  static constexpr std::array table = {
      FallbackTemplate{"Qwen2.5", qwen2_source},
      FallbackTemplate{"Qwen3", qwen3_source},
      FallbackTemplate{"Qwen3 Thinking", qwen3_thinking_source},
      FallbackTemplate{"Qwen3.5", qwen35_source},
      FallbackTemplate{"Llama 3", llama3_source},
      FallbackTemplate{"Llama 3.1", llama31_source},
      FallbackTemplate{"Mistral Nemo", mistral_nemo_source},
      FallbackTemplate{"Mistral Small", mistral_small_source},
      FallbackTemplate{"DeepSeek V3", deepseek_v3_source},
      FallbackTemplate{"DeepSeek R1", deepseek_r1_source},
      FallbackTemplate{"DeepSeek V3.1", deepseek_v31_source},
      FallbackTemplate{"DeepSeek V4", deepseek_v4_source},
      FallbackTemplate{"Kimi-K2", kimi_source},
      FallbackTemplate{"gpt-oss", harmony_source},
      FallbackTemplate{"GLM-4.5", glm45_source},
      FallbackTemplate{"GLM-4.7", glm47_source},
      FallbackTemplate{"MiniMax-M2", minimax_source},
      FallbackTemplate{"OLMoE", olmoe_source},
  };
  return table;
}

const FallbackTemplate* find_fallback_template(std::string_view family) noexcept {
  for (const FallbackTemplate& entry : fallback_templates())
    if (family == entry.family) return &entry;
  return nullptr;
}

namespace {

// Which of a family's marks the vocabulary has.
class Marks {
 public:
  explicit Marks(const Checkpoint& checkpoint)
      : tokens_(checkpoint.string_array("tokenizer.ggml.tokens")) {}
  bool all(std::initializer_list<std::string_view> marks) const {
    return tokens_ != nullptr && std::all_of(marks.begin(), marks.end(), [&](auto mark) {
             return std::find(tokens_->begin(), tokens_->end(), mark) != tokens_->end();
           });
  }

 private:
  const std::vector<std::string>* tokens_;
};

// Releases of one vocabulary whose formats differ are told apart by the model's name only.
bool is_named(const Checkpoint& checkpoint, std::string_view part) {
  std::string name;
  const auto known = checkpoint.has_string("general.name", name);
  return known && *known && name.find(part) != std::string::npos;
}

// The model's name and its file's, in small letters and without what separates words in them.
std::string plain_names(const Checkpoint& checkpoint) {
  std::string names, plain;
  static_cast<void>(checkpoint.has_string("general.name", names));
  const std::string path = checkpoint.display_path();
  names += " " + path.substr(path.rfind('/') + 1);
  for (const char c : names)
    if (c >= 'A' && c <= 'Z') plain += static_cast<char>(c - 'A' + 'a');
    else if (c != ' ' && c != '-' && c != '_') plain += c;
  return plain;
}

// Many models have ChatML's marks, and the releases of Qwen's architectures use them in different
// ways: Qwen1.5 and 2 have another system text, QwQ opens the reasoning, Qwen3-Coder writes calls
// and tools as XML. What is not known by name is not guessed.
const char* qwen_family(const Checkpoint& checkpoint) {
  const std::string architecture = checkpoint.architecture();
  const std::string names = plain_names(checkpoint);
  const auto named = [&](std::initializer_list<std::string_view> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](auto part) { return names.find(part) != std::string::npos; });
  };
  if (architecture == "qwen35" || architecture == "qwen35moe") return "Qwen3.5";
  if (architecture == "qwen2" || architecture == "qwen2moe")
    return named({"qwen2.5"}) && !named({"math"}) ? "Qwen2.5" : "";
  if (architecture != "qwen3" && architecture != "qwen3moe" && architecture != "qwen3next")
    return "";
  if (!named({"qwen3"}) || named({"qwen3.", "coder", "guard", "embedding", "reranker"})) return "";
  return named({"thinking"}) ? "Qwen3 Thinking" : "Qwen3";
}

const char* glm_family(const Checkpoint& checkpoint) {
  if (is_named(checkpoint, "4.5") || is_named(checkpoint, "4.6")) return "GLM-4.5";
  return is_named(checkpoint, "4.7") ? "GLM-4.7" : "";
}

const char* deepseek_family(const Checkpoint& checkpoint, bool thinks) {
  if (checkpoint.architecture() == "deepseek4") return "DeepSeek V4";
  if (!thinks) return "DeepSeek V3";
  if (is_named(checkpoint, "V3.1")) return "DeepSeek V3.1";
  return is_named(checkpoint, "R1") ? "DeepSeek R1" : "";
}

const char* family_of(const Checkpoint& checkpoint) {
  const Marks marks(checkpoint);
  if (marks.all({"<|start|>", "<|channel|>", "<|message|>", "<|return|>"})) return "gpt-oss";
  if (marks.all({"<|im_system|>", "<|im_middle|>"})) return "Kimi-K2";
  if (marks.all({"]~b]", "[e~["})) return "MiniMax-M2";
  if (marks.all({"[gMASK]", "<sop>", "<|observation|>"})) return glm_family(checkpoint);
  if (marks.all({"<｜User｜>", "<｜Assistant｜>"}))
    return deepseek_family(checkpoint, marks.all({"<think>"}));
  if (marks.all({"<|start_header_id|>", "<|eot_id|>"}))
    return marks.all({"<|python_tag|>", "<|eom_id|>"}) ? "Llama 3.1" : "Llama 3";
  if (marks.all({"[INST]", "[/INST]", "[TOOL_CALLS]"}))
    return marks.all({"[SYSTEM_PROMPT]"}) ? "Mistral Small" : "Mistral Nemo";
  if (marks.all({"<|im_start|>", "<|im_end|>"})) return qwen_family(checkpoint);
  if (checkpoint.architecture() == "olmoe") return "OLMoE";
  return "";
}

}  // namespace

const FallbackTemplate* find_fallback_template(const Checkpoint& checkpoint) {
  return find_fallback_template(family_of(checkpoint));
}

}  // namespace millrace
