// millrace perplexity: how well a model predicts a text, in windows as llama.cpp counts them.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "runtime/base/counted.h"
#include "runtime/base/json.h"
#include "runtime/evaluate.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct PerplexityFlags {
  EngineFlags engine;
  std::string file;
  std::string trace_path;
  std::uint32_t windows = 0;
  bool json = false;
};

Status run(PerplexityFlags& flags) {
  constexpr std::uint32_t window_default = 512;
  MILLRACE_ASSIGN(const std::string text, read_text_file(flags.file));
  if (flags.engine.context == 0) flags.engine.context = window_default;
  std::vector<TokenId> ids;
  const auto tokenize = [&](const Engine& engine, const Checkpoint&) -> Status {
    MILLRACE_TRY(engine.require_tokenizer());
    MILLRACE_ASSIGN(ids,
                    engine.tokenizer().encode(text, {.parse_special = false, .add_bos_eos = true}));
    return check_windows(engine, ids.size(), engine.plan().context,
                         flags.file == "-" ? "the text" : flags.file);
  };
  const ModelCheck check(tokenize);
  MILLRACE_ASSIGN(const auto running, start_engine(flags.engine, {{"--trace", flags.trace_path}},
                                                   {{"FILE", flags.file}}, &check));
  Engine& engine = *running->engine;
  ProgressLine progress(!flags.engine.quiet && stderr_is_terminal());
  MILLRACE_ASSIGN(
      const Perplexity result,
      measure_perplexity(engine, ids, {engine.plan().context, flags.windows, flags.trace_path},
                         [&](std::uint32_t done, std::uint32_t all, double value) {
                           progress.show(
                               "perplexity", static_cast<double>(done) / all,
                               fmt::format("{} of {} windows, {:.4f} so far", done, all, value));
                         }));
  progress.clear();
  ResultOutput out;
  if (flags.json) {
    Json object = Json::object();
    object.set("perplexity", result.value)
        .set("uncertainty", result.uncertainty)
        .set("tokens", result.tokens);
    object.set("scored", result.scored)
        .set("windows", result.windows)
        .set("window_tokens", engine.plan().context);
    out.write(object.dump(2) + "\n");
  } else {
    out.write(fmt::format("perplexity {:.4f} ± {:.4f} ({} of {} tokens, {}, text of {})\n",
                          result.value, result.uncertainty, counted(result.windows, "window"),
                          engine.plan().context, counted(result.scored, "token", "scored"),
                          counted(result.tokens, "token")));
  }
  return out.status();
}

}  // namespace

void add_perplexity(CLI::App& app, int& code) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = app.add_subcommand(
      "perplexity", "how well the model predicts a text (windows, second half scored)");
  command->add_option("MODEL,-m,--model", flags->engine.model, "GGUF file or safetensors folder")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->check(not_empty());
  command->add_option("FILE", flags->file, "the text (- is stdin)")->required()->check(not_empty());
  flags->engine.add_to(*command, false);
  command->add_option("--chunks", flags->windows, "at most so many windows [all]")
      ->transform(decimal());
  add_trace_flag(*command, flags->trace_path);
  command->add_flag("--json", flags->json, "one JSON object on stdout");
  command->callback([flags, &code] {
    const auto done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
