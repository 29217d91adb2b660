// millrace bench: one model with many settings, each beside its limit.
#include "tools/commands/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "io/write_file.h"
#include "runtime/base/counted.h"
#include "runtime/machine.h"
#include "runtime/sweep/sweep.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

// In the order of the table's columns; of the others the table names the one value.
enum Swept { threads, cache, policy, prefetch, depth, io, direct, swept_count };

struct BenchFlags {
  EngineFlags engine;
  SweepOptions sweep;
  std::vector<std::string> lists[swept_count];
  std::string svg;
  bool json = false;
};

constexpr const char* default_prompt =
    "Once upon a time there was a mill by the river, and the miller had three sons.";

// A list of one keeps the wording of the flag's own checks, but 0, which stands for a default
// there.
Result<std::uint32_t> count_of(const char* flag, const std::string& text, std::uint32_t most) {
  std::uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value == 0 || value > most)
    return out_of_range(flag, text, fmt::format("1 to {}", most));
  return value;
}

// 1, 2, 4 … up to all fast cores.
std::vector<std::string> thread_counts() {
  const unsigned cores = std::min(read_machine().cores, limits::threads_max);
  std::vector<std::string> counts;
  for (unsigned count = 1; count < cores; count *= 2) counts.push_back(std::to_string(count));
  counts.push_back(std::to_string(cores));
  return counts;
}

std::vector<SweepAxis> axes_of(const BenchFlags& flags) {
  const EngineFlags& base = flags.engine;
  const bool none = std::all_of(std::begin(flags.lists), std::end(flags.lists),
                                [](const auto& list) { return list.empty(); });
  const auto axis = [&](Swept which, const char* flag, std::string otherwise) {
    const auto& list = flags.lists[which];
    return SweepAxis{flag, list.empty() ? std::vector{std::move(otherwise)} : list};
  };
  std::vector<SweepAxis> axes(swept_count);
  axes[threads] = axis(threads, "--threads", thread_counts().back());
  if (none) axes[threads].values = thread_counts();
  axes[cache] = axis(cache, "--cache", "default");
  axes[policy] = axis(policy, "--policy", base.policy);
  axes[prefetch] = axis(prefetch, "--prefetch", base.prefetch);
  axes[depth] = axis(depth, "--depth", "default");
  axes[io] = axis(io, "--io", base.io);
  axes[direct] = axis(direct, "--direct", base.direct);
  return axes;
}

Result<EngineConfig> config_of(const EngineFlags& base, const std::vector<std::string>& values) {
  EngineFlags flags = base;
  MILLRACE_ASSIGN(flags.threads, count_of("--threads", values[threads], limits::threads_max));
  if (values[cache] != "default") flags.cache = values[cache];
  flags.policy = values[policy];
  flags.prefetch = values[prefetch];
  if (values[depth] != "default") {
    MILLRACE_ASSIGN(flags.depth, count_of("--depth", values[depth], limits::queue_depth_max));
  }
  flags.io = values[io];
  flags.direct = values[direct];
  return flags.config();
}

Status run(BenchFlags& flags) {
  flags.engine.set_log_level();
  install_interrupt_handler();
  SweepOptions& sweep = flags.sweep;
  sweep.axes = axes_of(flags);
  const auto make = [&](const std::vector<std::string>& values) {
    return config_of(flags.engine, values);
  };
  MILLRACE_ASSIGN(sweep.settings, sweep_settings(sweep.axes, make));
  const std::vector<NamedPath> outputs = {{"--svg", flags.svg}};
  const std::string& path = sweep.settings.front().config.model_path;
  MILLRACE_ASSIGN(const std::vector<NamedPath> inputs, model_files(path, outputs));
  MILLRACE_TRY(check_outputs(outputs, inputs));
  ProgressLine progress(!flags.engine.quiet && stderr_is_terminal());
  MILLRACE_ASSIGN(const SweepResult result, run_sweep(sweep, progress, cancel_flag()));
  if (!flags.svg.empty()) MILLRACE_TRY(write_file_atomically(flags.svg, sweep_svg(sweep, result)));
  ResultOutput out;
  out.write(flags.json ? sweep_json(sweep, result).dump(2) + "\n" : sweep_table(sweep, result));
  MILLRACE_TRY(out.status());
  if (result.interrupted) return *result.interrupted;
  if (!result.same_state())
    return Error{ErrorCode::verify, "runs of one model and prompt ended in different states"};
  return {};
}

void add_list(CLI::App& app, std::vector<std::string>& list, const char* flag, const char* name,
              const char* text) {
  app.remove_option(app.get_option(flag));
  app.add_option(name, list, text)->delimiter(',')->take_all()->check(not_empty());
}

}  // namespace

void add_bench(CLI::App& app, int& code) {
  auto flags = std::make_shared<BenchFlags>();
  SweepOptions& sweep = flags->sweep;
  sweep.prompt = default_prompt;
  CLI::App* command = app.add_subcommand(
      "bench", "run a model with many settings by turns, each beside what drive and memory allow");
  flags->engine.add_to(*command, true);
  auto& lists = flags->lists;
  add_list(*command, lists[threads], "--threads", "-t,--threads",
           "compute threads: 1,2,4 [if nothing is listed: 1, 2, 4 … all fast cores]");
  add_list(*command, lists[cache], "--cache", "--cache", "memory for experts: 2G,25%,all");
  add_list(*command, lists[policy], "--policy", "--policy", "eviction policies: forecast,lru");
  add_list(*command, lists[prefetch], "--prefetch", "--prefetch", "predictors: off,router1");
  add_list(*command, lists[depth], "--depth", "--depth", "reads in flight: 4,16");
  add_list(*command, lists[io], "--io", "--io", "readers: uring,threads");
  add_list(*command, lists[direct], "--direct", "--direct", "direct reads: on,off");
  command->add_option("-p,--prompt", sweep.prompt, "the text to continue")->check(not_empty());
  command->add_option("-n,--predict", sweep.tokens, "decoded tokens that a run measures")
      ->transform(decimal())
      ->capture_default_str();
  command->add_option("--warmup", sweep.warmup_tokens, "decoded tokens before them")
      ->transform(decimal())
      ->capture_default_str();
  command->add_option("--repeat", sweep.repeat, "runs of each setting, by turns")
      ->transform(decimal())
      ->capture_default_str();
  command->add_option("--svg", flags->svg, "write a picture: tokens/s by threads, and the limits")
      ->check(not_empty());
  command->add_flag("--json", flags->json, "print one JSON object on stdout");
  command->callback([flags, &code] {
    const Status done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
