// millrace replay: policies and capacities over a recorded routing, priced in time.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "runtime/replay_study.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct ReplayFlags {
  ReplayOptions options;
  std::vector<std::string> capacities = {"5%", "10%", "25%", "50%"};
  double drive_gbps = 0;
  double compute_ms = 0;
  bool json = false;
};

Status run(ReplayFlags& flags) {
  for (const std::string& text : flags.capacities) {
    auto size = parse_size(text);
    if (!size) return Error{ErrorCode::usage, "--capacity: " + size.error().what};
    flags.options.capacities.push_back(*size);
  }
  flags.options.drive_bytes_per_second = flags.drive_gbps * 1e9;
  flags.options.compute_seconds = flags.compute_ms * 1e-3;
  MILLRACE_ASSIGN(const ReplayStudy study, study_replay(flags.options));
  ResultOutput out;
  out.write(flags.json ? replay_json(study).dump(2) + "\n" : replay_table(study));
  return out.status();
}

}  // namespace

void add_replay(CLI::App& app, int& code) {
  auto flags = std::make_shared<ReplayFlags>();
  ReplayOptions& options = flags->options;
  CLI::App* command = app.add_subcommand(
      "replay",
      "what cache policies would have made of a recorded routing, beside the best "
      "possible");
  command->add_option("TRACE", options.trace_path, "of run --trace or trace; .gz too")
      ->required()
      ->check(not_empty());
  command
      ->add_option("-m,--model", options.model_path,
                   "GGUF file that the trace is of [the figures in the trace]")
      ->check(not_empty());
  command->add_option("--expert-bytes", options.expert_bytes,
                      "bytes of an expert, without a model [as the trace says]");
  command->add_option("--experts", options.experts,
                      "experts of a layer, without a model [as the trace says]");
  command->add_option("--policy", options.policies, "policies to compare with lru and belady [all]")
      ->delimiter(',')
      ->take_all()
      ->check(not_empty());
  command
      ->add_option("--capacity", flags->capacities,
                   "cache sizes: 25% of the pool, 6G, all [5%,10%,25%,50%]")
      ->delimiter(',')
      ->take_all()
      ->check(not_empty());
  command->add_option("--warmup", options.warmup, "share of the tokens that only fill the cache")
      ->capture_default_str();
  command->add_option("--drive-gbps", flags->drive_gbps,
                      "10^9 bytes per second that the drive delivers: adds tokens/s");
  command->add_option("--compute-ms", flags->compute_ms,
                      "milliseconds of computing per token when nothing has to be read");
  command->add_option("--expert-share", options.expert_share, "of the computing, in routed experts")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "one JSON object on stdout");
  command->callback([flags, &code] {
    const auto done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
