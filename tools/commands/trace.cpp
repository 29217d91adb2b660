// millrace trace: records the routing of a run, brings others' recordings into the same form, and
// says what is in one.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "prefetch/routing_walks.h"
#include "runtime/base/log.h"
#include "runtime/evaluate.h"
#include "runtime/generate.h"
#include "runtime/replay_study.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct TraceFlags {
  EngineFlags engine;
  GenerateOptions generate;
  std::string prompt, prompt_file;
  std::string input, output, model;  // of import and show
  bool json = false;
};

Status print_summary(const RoutingRecord& record, const std::string& path, bool json) {
  const TraceSummary summary = summarise(record);
  const std::string incomplete = incomplete_end(record);
  if (!incomplete.empty()) log_warning(path + ": " + incomplete);
  ResultOutput out;
  out.write(json ? summary_json(record, summary).dump(2) + "\n" : summary_table(record, summary));
  return out.status();
}

// Greedy, so that the same prompt gives the same trace.
Status record(TraceFlags& flags) {
  if (flags.output.empty())
    return Error{ErrorCode::usage, "give the file to write with -o, or a subcommand: import, show"};
  if (!flags.prompt_file.empty() && !flags.prompt.empty())
    return Error{ErrorCode::usage, "give the prompt with -p or with -f, not both"};
  std::string text = flags.prompt;
  if (!flags.prompt_file.empty()) {
    MILLRACE_ASSIGN(text, read_text_file(flags.prompt_file));
  }
  if (text.empty()) return Error{ErrorCode::usage, "the prompt is empty (give text with -p or -f)"};
  MILLRACE_ASSIGN(const auto running,
                  start_engine(flags.engine, {{"-o", flags.output}}, {{"-f", flags.prompt_file}}));
  Engine& engine = *running->engine;
  if (engine.spec().hparams.experts == 0)
    return Error{ErrorCode::usage, fmt::format("{}: the model has no routed experts to record",
                                               engine.config().model_path)};
  MILLRACE_TRY(engine.require_tokenizer());
  MILLRACE_ASSIGN(flags.generate.prompt, encode_prompt(engine, text));
  flags.generate.trace_path = flags.output;
  flags.generate.sampling.temperature = 0;
  flags.generate.ignore_eos = true;
  MILLRACE_ASSIGN(const GenerateResult result,
                  generate(engine, flags.generate, [](std::string_view) {}));
  if (result.error) return *result.error;
  MILLRACE_ASSIGN(const RoutingRecord recorded, read_routing(flags.output));
  return print_summary(recorded, flags.output, flags.json);
}

Status import(const TraceFlags& flags) {
  install_interrupt_handler();
  MILLRACE_TRY(check_outputs({{"-o", flags.output}},
                             {{"the trace", flags.input}, {"--model", flags.model}}));
  MILLRACE_ASSIGN(RoutingRecord record, read_routing(flags.input, &cancel_flag()));
  if (!flags.model.empty()) {
    MILLRACE_ASSIGN(const ModelFigures model, read_model_figures(flags.model));
    MILLRACE_TRY(check_trace_of_model(record, flags.input, model));
    record.header.model = model.name;
    record.header.architecture = model.architecture;
    record.header.layers = model.layers;
    record.header.experts = model.experts;
  }
  MILLRACE_TRY(write_routing(record, flags.output));
  return print_summary(record, flags.input, flags.json);
}

Status show(const TraceFlags& flags) {
  install_interrupt_handler();
  MILLRACE_ASSIGN(const RoutingRecord record, read_routing(flags.input, &cancel_flag()));
  if (!flags.model.empty()) {
    MILLRACE_ASSIGN(const ModelFigures model, read_model_figures(flags.model));
    MILLRACE_TRY(check_trace_of_model(record, flags.input, model));
  }
  return print_summary(record, flags.input, flags.json);
}

void add_reading(CLI::App& command, TraceFlags& flags) {
  command.add_option("TRACE", flags.input, "CSV, plain or .gz")->required()->check(not_empty());
  command.add_option("-m,--model", flags.model, "GGUF file that it must be of")->check(not_empty());
  command.add_flag("--json", flags.json, "one JSON object on stdout");
}

template <class Run>
void on_call(CLI::App& command, const std::shared_ptr<TraceFlags>& flags, int& code, Run run) {
  command.callback([flags, &code, run] {
    const Status done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace

void add_trace(CLI::App& app, int& code) {
  auto flags = std::make_shared<TraceFlags>();
  CLI::App* command = app.add_subcommand(
      "trace", "record which experts the routers choose, and say how often they come again");
  command->add_option("-o,--output", flags->output, "CSV to write")->check(not_empty());
  command->add_option("-p,--prompt", flags->prompt, "the text to continue");
  command->add_option("-f,--file", flags->prompt_file, "the text, from a file (- is stdin)")
      ->check(not_empty());
  command->add_option("-n,--predict", flags->generate.tokens_max, "tokens to generate")
      ->capture_default_str();
  flags->engine.add_to(*command, true);
  command->add_flag("--json", flags->json, "one JSON object on stdout");
  command->require_subcommand(0, 1);
  CLI::App* importing =
      command->add_subcommand("import", "bring a recording of another program into this form");
  add_reading(*importing, *flags);
  importing->add_option("-o,--output", flags->output, "CSV to write")
      ->required()
      ->check(not_empty());
  CLI::App* showing = command->add_subcommand("show", "say what is in a recording");
  add_reading(*showing, *flags);
  on_call(*importing, flags, code, [](TraceFlags& given) { return import(given); });
  on_call(*showing, flags, code, [](TraceFlags& given) { return show(given); });
  command->callback([flags, &code, command] {
    if (!command->get_subcommands().empty()) return;
    const Status done = record(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
