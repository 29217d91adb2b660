#include "model/chat/chat_template.h"

#include <fmt/format.h>

#include "model/chat/fallback_templates.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr const char* template_key = "tokenizer.chat_template";
constexpr const char* tool_use_key = "tokenizer.chat_template.tool_use";
constexpr const char* default_key = "tokenizer.chat_template.default";

// The text of the token that a key names; empty if there is none.
Result<std::string> token_text(const Checkpoint& checkpoint, const char* key,
                               std::optional<std::uint32_t> fallback) {
  const auto* tokens = checkpoint.string_array("tokenizer.ggml.tokens");
  std::uint32_t id = fallback.value_or(0);
  MILLRACE_ASSIGN(const bool given, checkpoint.has_u32(key, id));
  if (tokens == nullptr || (!given && !fallback) || id >= tokens->size()) return std::string();
  return (*tokens)[id];
}

// Whether the prompt ends inside a <think> that the template opened.
bool ends_in_reasoning(const jinja::Rendered& rendered) {
  constexpr std::string_view opening = "<think>";
  std::string_view text = rendered.text;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text.ends_with(opening) &&
         (rendered.foreign.empty() || rendered.foreign.back().end <= text.size() - opening.size());
}

}  // namespace

Result<ChatTemplate::Variant> ChatTemplate::load(const std::string& source,
                                                 const Sources& sources) {
  Variant made;
  made.source = source;
  auto parsed = jinja::Template::parse(source);
  if (!parsed)
    return Error{parsed.error().code,
                 fmt::format("{}: {}, {}", sources.name, template_key, parsed.error().what)};
  made.program = *std::move(parsed);
  made.features = probe_template(*made.program, sources.bos, sources.eos);
  return made;
}

Result<ChatTemplate> ChatTemplate::from_sources(const Sources& sources) {
  ChatTemplate made;
  made.name_ = sources.name;
  made.bos_ = sources.bos;
  made.eos_ = sources.eos;
  MILLRACE_ASSIGN(made.plain_, load(sources.plain, sources));
  if (sources.tool_use.empty()) {
    made.with_tools_ = made.plain_;
  } else {
    MILLRACE_ASSIGN(made.with_tools_, load(sources.tool_use, sources));
  }
  return made;
}

Result<ChatTemplate> ChatTemplate::from_checkpoint(const Checkpoint& checkpoint) {
  Sources sources;
  sources.name = checkpoint.display_path();
  std::string model;
  MILLRACE_TRY(checkpoint.has_string("tokenizer.ggml.model", model));
  const bool spm = model == "llama";
  using Id = std::optional<std::uint32_t>;
  MILLRACE_ASSIGN(sources.bos, token_text(checkpoint, "tokenizer.ggml.bos_token_id",
                                          spm ? Id(1) : std::nullopt));
  MILLRACE_ASSIGN(sources.eos, token_text(checkpoint, "tokenizer.ggml.eos_token_id",
                                          spm ? Id(2) : std::nullopt));
  MILLRACE_TRY(checkpoint.has_string(tool_use_key, sources.tool_use));
  MILLRACE_ASSIGN(bool given, checkpoint.has_string(template_key, sources.plain));
  if (!given) {
    MILLRACE_ASSIGN(given, checkpoint.has_string(default_key, sources.plain));
  }
  if (!given) {
    const FallbackTemplate* fallback = find_fallback_template(checkpoint);
    if (fallback == nullptr)
      return Error{
          ErrorCode::unsupported,
          fmt::format("{}: no chat template ({} is missing), and neither its vocabulary nor its "
                      "name tells which built-in format would be right: take a file with its "
                      "template (a checkpoint's folder: chat_template.jinja), or run without "
                      "--chat, with the whole prompt in the model's format",
                      sources.name, template_key)};
    log_warning(fmt::format(
        "{}: {} is missing; the built-in chat format of {} is used, as vocabulary and name suggest",
        sources.name, template_key, fallback->family));
    sources.plain = fallback->source();
  }
  return from_sources(sources);
}

Result<RenderedChat> ChatTemplate::render(const ChatRequest& request) const {
  const Json::Array* tools = request.tools.as_array();
  if (!request.tools.is_null() && tools == nullptr)
    return Error{ErrorCode::usage, "the tools of a chat must be a list"};
  const bool has_tools = tools != nullptr && !tools->empty();
  const Variant& variant = has_tools ? with_tools_ : plain_;
  if (has_tools && !variant.features.tools)
    return Error{ErrorCode::usage,
                 fmt::format("{}: the chat template has no place for tools", name_)};
  jinja::RenderOptions options;
  ChatRequest without_tools;
  const ChatRequest* shaped = &request;
  if (tools != nullptr && !has_tools) {  // an empty list is no list: templates test for presence
    without_tools = request;
    without_tools.tools = Json();
    shaped = &without_tools;
  }
  MILLRACE_ASSIGN(options.variables, template_variables(*shaped, variant.features, bos_, eos_));
  options.now = request.now;
  auto rendered = variant.program->render(options);
  if (!rendered)
    return Error{rendered.error().code,
                 fmt::format("{}: chat template, {}", name_, rendered.error().what)};
  RenderedChat made;
  made.in_reasoning = request.add_generation_prompt && ends_in_reasoning(*rendered);
  made.text = std::move(rendered->text);
  made.foreign = std::move(rendered->foreign);
  return made;
}

Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat) {
  EncodeOptions options;
  options.parse_special = true;
  options.never_special = chat.foreign;
  MILLRACE_ASSIGN(std::vector<TokenId> ids, tokenizer.encode(chat.text, options));
  const SpecialTokens& special = tokenizer.special();
  if (special.add_bos && special.bos && (ids.empty() || ids.front() != *special.bos))
    ids.insert(ids.begin(), *special.bos);
  return ids;
}

}  // namespace millrace
