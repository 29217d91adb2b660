// millrace run: prompt in, text out, then the report.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <memory>

#include "model/chat/chat_template.h"
#include "model/format/open.h"
#include "runtime/base/json.h"
#include "runtime/evaluate.h"
#include "runtime/generate.h"
#include "runtime/report.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct RunFlags {
  EngineFlags engine;
  GenerateOptions generate;
  std::string prompt, prompt_file;
  std::int64_t seed = -1;
  bool json = false;
  bool chat = false;
};

Result<std::string> prompt_text(const RunFlags& flags) {
  if (!flags.prompt_file.empty() && !flags.prompt.empty())
    return Error{ErrorCode::usage, "give the prompt with -p or with -f, not both"};
  if (!flags.prompt_file.empty()) return read_text_file(flags.prompt_file);
  return flags.prompt;
}

Status encode_prompt(const Engine& engine, const std::string& text, std::vector<TokenId>& ids) {
  if (text.empty()) return Error{ErrorCode::usage, "the prompt is empty (give text with -p or -f)"};
  MILLRACE_TRY(engine.require_tokenizer());
  MILLRACE_ASSIGN(ids,
                  engine.tokenizer().encode(text, {.parse_special = false, .add_bos_eos = true}));
  // An end token behind the prompt would end the text before it begins.
  const auto& special = engine.tokenizer().special();
  if (special.add_eos && special.eos && ids.size() > 1 && ids.back() == *special.eos)
    ids.pop_back();
  return {};
}

jinja::Moment local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return {parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
          parts.tm_hour,        parts.tm_min,     parts.tm_sec};
}

// The prompt as the one message of a user, in the model's template.
Status encode_message(const Engine& engine, const std::string& text, std::vector<TokenId>& ids) {
  MILLRACE_TRY(engine.require_tokenizer());
  MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(engine.config().model_path));
  MILLRACE_ASSIGN(const ChatTemplate chat, ChatTemplate::from_checkpoint(checkpoint));
  ChatMessage message;
  message.role = "user";
  message.content = text;
  ChatRequest request;
  request.messages.push_back(std::move(message));
  request.now = local_time();
  MILLRACE_ASSIGN(const RenderedChat rendered, chat.render(request));
  MILLRACE_ASSIGN(ids, encode_chat(engine.tokenizer(), rendered));
  return {};
}

// Everything up to the last token. `running` is made here and outlives the result.
Result<GenerateResult> generate_text(RunFlags& flags, std::unique_ptr<RunningEngine>& running,
                                     ResultOutput& out) {
  if (flags.seed < -1 || flags.seed >= std::int64_t{random_seed})
    return Error{ErrorCode::usage, fmt::format("--seed {}: must be 0 to {}, or -1 for a random one",
                                               flags.seed, random_seed - 1)};
  flags.generate.sampling.seed = static_cast<std::uint32_t>(flags.seed);
  MILLRACE_TRY(check_options(flags.generate));
  MILLRACE_ASSIGN(const std::string text, prompt_text(flags));
  if (text.empty()) return Error{ErrorCode::usage, "the prompt is empty (give text with -p or -f)"};
  MILLRACE_ASSIGN(running, start_engine(flags.engine,
                                        {{"--trace", flags.generate.trace_path},
                                         {"--dump-state", flags.generate.state_path}},
                                        {{"-f", flags.prompt_file}}));
  Engine& engine = *running->engine;
  if (flags.chat) MILLRACE_TRY(encode_message(engine, text, flags.generate.prompt));
  else MILLRACE_TRY(encode_prompt(engine, text, flags.generate.prompt));
  // An answer stands for itself; what continues a text is shown behind it.
  if (!flags.json && !flags.chat) flags.generate.echo = text;
  return generate(engine, flags.generate, [&](std::string_view piece) {
    if (!flags.json && !out.write(piece)) cancel_flag() = true;
  });
}

// For a run that came to nothing: what --json promises is one object, whatever happens.
Json error_json(const Error& error) {
  const bool cancelled = error.code == ErrorCode::cancelled;
  return Json::object()
      .set("finish_reason",
           finish_reason_name(cancelled ? FinishReason::cancelled : FinishReason::error))
      .set("error", error.what);
}

Result<int> run(RunFlags& flags) {
  ResultOutput out;
  std::unique_ptr<RunningEngine> running;
  const auto made = generate_text(flags, running, out);
  if (!made) {
    if (flags.json) out.write(error_json(made.error()).dump(2) + "\n");
    return made.error();
  }
  const GenerateResult& result = *made;
  const Engine& engine = *running->engine;
  out.write(flags.json ? report_json(engine, result).dump(2) + "\n" : "\n");
  if (!flags.engine.quiet) std::fputs(("\n" + report_table(engine, result)).c_str(), stderr);
  MILLRACE_TRY(out.status());
  const bool ours = out.failed() && result.finish == FinishReason::cancelled;
  if (result.error && !ours) return report_error(*result.error);
  return 0;
}

void add_sampling_flags(CLI::App& app, RunFlags& flags) {
  SamplingOptions& sampling = flags.generate.sampling;
  app.add_option("--seed", flags.seed, "of the sampler, 0 to 4294967294; -1: random, and reported")
      ->transform(decimal())
      ->capture_default_str();
  app.add_option("--temp", sampling.temperature, "temperature; 0: greedy")->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "keep the k likeliest tokens; 0: all")
      ->transform(decimal())
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "keep the likeliest tokens of this share; 1: all")
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p,
                 "drop tokens below this share of the likeliest; 0: none")
      ->capture_default_str();
  app.add_option("--repeat-penalty", sampling.repeat_penalty, "1: none")->capture_default_str();
  app.add_option("--repeat-last-n", sampling.repeat_last_n,
                 "tokens that penalties look at; -1: all")
      ->transform(decimal())
      ->capture_default_str();
  app.add_option("--presence-penalty", sampling.presence_penalty)->capture_default_str();
  app.add_option("--frequency-penalty", sampling.frequency_penalty)->capture_default_str();
  app.add_option("--stop", flags.generate.stop, "text that ends the generation (repeatable)")
      ->take_all()
      ->check(not_empty());
  app.add_flag("--ignore-eos", flags.generate.ignore_eos, "never choose an end token");
}

}  // namespace

void add_run(CLI::App& app, int& code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command =
      app.add_subcommand("run", "generate text, then report where the time and the bytes went");
  command->add_option("-p,--prompt", flags->prompt, "the text to continue");
  command
      ->add_option("-f,--file", flags->prompt_file,
                   "the text to continue, from a file (- is stdin)")
      ->check(not_empty());
  command->add_flag("--chat", flags->chat,
                    "wrap the prompt in the model's chat template, as a user's message");
  command->add_option("-n,--predict", flags->generate.tokens_max, "tokens to generate at most")
      ->transform(decimal())
      ->capture_default_str();
  add_sampling_flags(*command, *flags);
  flags->engine.add_to(*command, true);
  add_trace_flag(*command, flags->generate.trace_path);
  command
      ->add_option("--dump-state", flags->generate.state_path,
                   "write the float32 logits that were sampled from")
      ->check(not_empty());
  command->add_flag("--json", flags->json,
                    "print one JSON object on stdout, the text or the error inside");
  command->callback([flags, &code] {
    auto done = run(*flags);
    code = done ? *done : report_error(done.error());
  });
}

}  // namespace millrace::tools
