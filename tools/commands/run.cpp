// millrace run: prompt in, text out, then the report.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "runtime/base/counted.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/evaluate.h"
#include "runtime/generate.h"
#include "runtime/report.h"
#include "tools/chat_output.h"
#include "tools/command.h"
#include "tools/commands/run_many.h"

namespace millrace::tools {

namespace {

struct RunFlags {
  EngineFlags engine;
  GenerateOptions generate;
  std::string prompt, prompt_file, prompts_file;
  std::uint32_t parallel = 0;  // 0: not given
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

// A text that was meant as the prompt is most often typed without its -p, and then names the model.
Error no_prompt(const RunFlags& flags) {
  std::error_code ignored;
  if (!flags.engine.model.empty() && !std::filesystem::exists(flags.engine.model, ignored))
    return Error{ErrorCode::usage,
                 fmt::format("there is no prompt, and no model file \"{0}\": did you mean -p "
                             "\"{0}\"?",
                             printable(flags.engine.model))};
  return Error{ErrorCode::usage, "the prompt is empty (give text with -p or -f)"};
}

// Everything of a run, in the order in which it is made; each part may borrow from those before.
struct Run {
  std::unique_ptr<RunningEngine> running;
  std::optional<ChatPrompt> chat;
  std::optional<ChatOutput> answer;
  std::optional<GenerateResult> result;
};

// The prompt's ids, before the trunk is read: what is wrong with them is told at once.
Status make_prompt(RunFlags& flags, const std::string& text, Run& run, const Engine& engine,
                   const Checkpoint& checkpoint) {
  MILLRACE_TRY(engine.require_tokenizer());
  if (flags.chat) {
    MILLRACE_ASSIGN(run.chat, chat_prompt(engine.tokenizer(), checkpoint, text));
    flags.generate.prompt = run.chat->ids;
  } else {
    MILLRACE_ASSIGN(flags.generate.prompt, encode_prompt(engine, text));
  }
  return check_prompt(engine, flags.generate.prompt);
}

// The answer of a chat is taken apart as it comes; text that is continued goes out as it is.
Status generate_with(RunFlags& flags, Run& run, ResultOutput& out) {
  const auto go_on = [](bool written) {
    if (!written) cancel_flag() = true;
  };
  if (run.chat) run.answer.emplace(*run.chat, out, !flags.json, flags.engine.quiet);
  const auto on_control = [&](std::string_view mark) { go_on(run.answer->control(mark)); };
  const ControlSink control(on_control);
  if (run.answer) flags.generate.control = &control;
  auto made = generate(*run.running->engine, flags.generate, [&](std::string_view piece) {
    if (run.answer) go_on(run.answer->text(piece));
    else if (!flags.json) go_on(out.write(piece));
  });
  flags.generate.control = nullptr;
  MILLRACE_ASSIGN(run.result, std::move(made));
  if (run.answer) run.answer->finish();
  return {};
}

Status check_seed(const RunFlags& flags) {
  if (flags.seed < -1 || flags.seed >= std::int64_t{random_seed})
    return out_of_range("--seed", std::to_string(flags.seed),
                        fmt::format("0 to {}, or -1 for a random one", random_seed - 1));
  return {};
}

// Everything up to the last token.
Status generate_text(RunFlags& flags, Run& run, ResultOutput& out) {
  MILLRACE_TRY(check_seed(flags));
  flags.generate.sampling.seed = static_cast<std::uint32_t>(flags.seed);
  MILLRACE_TRY(check_options(flags.generate));
  MILLRACE_ASSIGN(const std::string text, prompt_text(flags));
  if (text.empty()) return no_prompt(flags);
  const auto prompt = [&](const Engine& engine, const Checkpoint& checkpoint) {
    return make_prompt(flags, text, run, engine, checkpoint);
  };
  const ModelCheck check(prompt);
  MILLRACE_ASSIGN(run.running, start_engine(flags.engine,
                                            {{"--trace", flags.generate.trace_path},
                                             {"--dump-state", flags.generate.state_path}},
                                            {{"-f", flags.prompt_file}}, &check));
  // An answer stands for itself; what continues a text is shown behind it.
  if (!flags.json && !flags.chat) flags.generate.echo = text;
  return generate_with(flags, run, out);
}

// For a run that came to nothing: what --json promises is one object, whatever happens.
Json error_json(const Error& error) {
  const bool cancelled = error.code == ErrorCode::cancelled;
  return Json::object()
      .set("finish_reason",
           finish_reason_name(cancelled ? FinishReason::cancelled : FinishReason::error))
      .set("error", error.what);
}

std::string run_json(const Run& run) {
  Json report = report_json(*run.running->engine, *run.result);
  if (run.answer) run.answer->add_to(report);
  return report.dump(2) + "\n";
}

// Copies of one prompt, or the prompts of a file.
Result<ManyFlags> many_flags(const RunFlags& flags) {
  constexpr std::uint32_t at_once_default = 8;
  MILLRACE_TRY(check_seed(flags));
  if (!flags.generate.trace_path.empty() || !flags.generate.state_path.empty())
    return Error{ErrorCode::usage,
                 "--trace and --dump-state record one sequence, not those of --parallel or "
                 "--prompts"};
  ManyFlags many;
  many.engine = flags.engine;
  many.generate = flags.generate;
  many.seed = flags.seed;
  many.prompts_file = flags.prompts_file;
  many.chat = flags.chat;
  if (flags.prompts_file.empty()) {
    MILLRACE_ASSIGN(const std::string text, prompt_text(flags));
    if (text.empty()) return no_prompt(flags);
    many.prompts.assign(flags.parallel, text);
  } else {
    if (!flags.prompt.empty() || !flags.prompt_file.empty())
      return Error{ErrorCode::usage, "give prompts with --prompts, or one with -p or -f, not both"};
    MILLRACE_ASSIGN(many.prompts, read_prompts(flags.prompts_file));
  }
  const auto count = static_cast<std::uint32_t>(many.prompts.size());
  many.engine.sequences = std::min(count, flags.parallel > 0 ? flags.parallel : at_once_default);
  return many;
}

Status generate_many_texts(const RunFlags& flags, ManyRun& run, ResultOutput& out) {
  MILLRACE_ASSIGN(const ManyFlags many, many_flags(flags));
  return run.generate(many, out);
}

Result<int> run_many(const RunFlags& flags) {
  ResultOutput out;
  ManyRun run;
  const Status made = generate_many_texts(flags, run, out);
  if (!made) {
    if (flags.json) out.write(error_json(made.error()).dump(2) + "\n");
    return made.error();
  }
  out.write(flags.json ? run.json() : run.texts());
  if (!flags.engine.quiet) std::fputs(("\n" + run.table()).c_str(), stderr);
  MILLRACE_TRY(out.status());
  if (const auto error = run.result().summary().error) return report_error(*error);
  return 0;
}

Result<int> run(RunFlags& flags) {
  if (flags.parallel > 0 || !flags.prompts_file.empty()) return run_many(flags);
  ResultOutput out;
  Run run;
  const Status made = generate_text(flags, run, out);
  if (!made) {
    if (flags.json) out.write(error_json(made.error()).dump(2) + "\n");
    return made.error();
  }
  const GenerateResult& result = *run.result;
  out.write(flags.json ? run_json(run) : "\n");
  if (!flags.engine.quiet)
    std::fputs(("\n" + report_table(*run.running->engine, result)).c_str(), stderr);
  MILLRACE_TRY(out.status());
  const bool ours = out.failed() && result.finish == FinishReason::cancelled;
  if (result.error && !ours) return report_error(*result.error);
  return 0;
}

// Refuses what is too large for a float, as typed; other values are the sampler's to judge.
CLI::Validator finite(const std::string& flag) {
  const auto check = [=](std::string& text) {
    float value = 0;
    if (CLI::detail::lexical_cast(text, value) && std::isinf(value))
      throw CLI::ParseError(out_of_range(flag, text, "a finite number").what,
                            CLI::ExitCodes::ValidationError);
    return std::string();
  };
  return {check, std::string()};
}

void add_sampling_flags(CLI::App& app, RunFlags& flags) {
  SamplingOptions& sampling = flags.generate.sampling;
  app.add_option("--seed", flags.seed, "of the sampler, 0 to 4294967294; -1: random, and reported")
      ->transform(decimal())
      ->capture_default_str();
  app.add_option("--temp", sampling.temperature, "temperature; 0: greedy")
      ->check(finite("--temp"))
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "keep the k likeliest tokens; 0: all")
      ->transform(decimal())
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "keep the likeliest tokens of this share; 1: all")
      ->check(finite("--top-p"))
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p,
                 "drop tokens below this share of the likeliest; 0: none")
      ->check(finite("--min-p"))
      ->capture_default_str();
  app.add_option("--repeat-penalty", sampling.repeat_penalty, "1: none")
      ->check(finite("--repeat-penalty"))
      ->capture_default_str();
  app.add_option("--repeat-last-n", sampling.repeat_last_n,
                 "tokens that penalties look at; -1: all")
      ->transform(decimal())
      ->capture_default_str();
  app.add_option("--presence-penalty", sampling.presence_penalty,
                 "taken once from the logit of a token that is there already; 0: none")
      ->check(finite("--presence-penalty"))
      ->capture_default_str();
  app.add_option("--frequency-penalty", sampling.frequency_penalty,
                 "taken from the logit of a token each time that it is there already; 0: none")
      ->check(finite("--frequency-penalty"))
      ->capture_default_str();
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
  command
      ->add_option("--prompts", flags->prompts_file,
                   "texts to continue, several at a time: one a line, or a JSON array")
      ->check(not_empty());
  command
      ->add_option(
          "--parallel,--np", flags->parallel,
          "sequences at a time (also -np): of --prompts [up to 8, at most 256], else copies of the "
          "prompt with seeds of their own")
      ->transform(whole_number("--parallel", 1, sequences_max));
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
