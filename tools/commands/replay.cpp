// millrace replay: policies and capacities over a recorded routing, priced in time.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/write_file.h"
#include "prefetch/predictor.h"
#include "runtime/base/counted.h"
#include "runtime/estimate/predict.h"
#include "runtime/replay_pricing.h"
#include "runtime/replay_study.h"
#include "tools/command.h"
#include "tools/user_folders.h"

namespace millrace::tools {

namespace {

struct ReplayFlags {
  ReplayOptions options;
  std::vector<std::string> capacities;
  std::optional<double> drive_gbps, compute_ms, expert_share, ahead;
  std::string prefetch = predictor_default(), svg;
  bool json = false;
};

// What would change nothing is no flag to be taken in silence.
Status refuse_idle(const ReplayFlags& flags) {
  const ReplayOptions& options = flags.options;
  const bool model = !options.model_path.empty();
  if (!model && !flags.drive_gbps) {
    const char* const idle = flags.compute_ms     ? "--compute-ms"
                             : flags.ahead        ? "--ahead"
                             : flags.expert_share ? "--expert-share"
                                                  : nullptr;
    if (idle != nullptr)
      return Error{ErrorCode::usage, fmt::format("{}: needs --drive-gbps or --model too", idle)};
  }
  if (model && (options.experts > 0 || options.expert_bytes > 0))
    return Error{ErrorCode::usage,
                 fmt::format("{}: the file of --model says it, leave it out",
                             options.experts > 0 ? "--experts" : "--expert-bytes")};
  return {};
}

// By what the flags say, and for what they do not say by this machine, if there is a model to be
// computed and a drive that it lies on.
Status price(ReplayFlags& flags) {
  ReplayOptions& options = flags.options;
  MILLRACE_TRY(refuse_idle(flags));
  if (flags.drive_gbps && *flags.drive_gbps == 0)  // which options take for "not priced"
    return out_of_range("--drive-gbps", "0", fmt::format("{:g} or more", replay_rate_min / 1e9));
  if (flags.prefetch != "off") MILLRACE_TRY(make_predictor(flags.prefetch));
  options.ahead = flags.ahead.value_or(ahead_share(flags.prefetch));
  std::string drive_from;
  std::string compute_from = "computing counts as nothing (give --compute-ms, or --model)";
  if (!options.model_path.empty() && !(flags.drive_gbps && flags.compute_ms)) {
    MILLRACE_ASSIGN(const ReplayPricing here, measure_pricing(options.model_path, cache_folder()));
    options.drive_bytes_per_second = here.drive_bytes_per_second;
    options.latency_seconds = here.latency_seconds;
    options.compute_seconds = here.compute_seconds;
    options.expert_share = here.expert_share;
    options.head_share = here.head_share;
    drive_from = here.drive_from;
    compute_from = here.compute_from;
  }
  if (flags.drive_gbps) {
    options.drive_bytes_per_second = *flags.drive_gbps * 1e9;
    options.latency_seconds = 0;
    drive_from = fmt::format("{:g} GB/s (--drive-gbps)", *flags.drive_gbps);
  }
  if (flags.compute_ms) {
    options.compute_seconds = *flags.compute_ms * 1e-3;
    compute_from = fmt::format("{:g} ms of computing (--compute-ms)", *flags.compute_ms);
  }
  options.expert_share = flags.expert_share.value_or(options.expert_share);
  if (options.drive_bytes_per_second > 0) options.priced_by = drive_from + ", " + compute_from;
  return {};
}

Status run(ReplayFlags& flags) {
  install_interrupt_handler();
  flags.options.cancel = &cancel_flag();
  flags.options.skip_small = flags.capacities.empty();
  if (flags.capacities.empty()) flags.capacities = {"5%", "10%", "25%", "50%"};
  for (const std::string& text : flags.capacities) {
    auto size = parse_size(text);
    if (!size) return Error{ErrorCode::usage, "--capacity: " + size.error().what};
    flags.options.capacities.push_back(*size);
  }
  MILLRACE_TRY(price(flags));
  const ReplayOptions& options = flags.options;
  MILLRACE_TRY(check_outputs({{"--svg", flags.svg}},
                             {{"TRACE", options.trace_path}, {"--model", options.model_path}}));
  MILLRACE_ASSIGN(const ReplayStudy study, study_replay(options));
  if (!flags.svg.empty()) MILLRACE_TRY(write_file_atomically(flags.svg, replay_svg(study)));
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
  command->add_option(
      "--drive-gbps", flags->drive_gbps,
      "10^9 bytes per second that the drive delivers [with --model: its profile's]");
  command->add_option("--compute-ms", flags->compute_ms,
                      "milliseconds of computing per token when nothing has to be read [with "
                      "--model: measured, else 0]");
  command->add_option("--expert-share", flags->expert_share,
                      "of the computing, in routed experts [with --model: measured, else 0.5]");
  command->add_option("--prefetch", flags->prefetch, "what guesses ahead, or off")
      ->capture_default_str();
  command->add_option("--ahead", flags->ahead,
                      "share of the missing experts that it guesses in time [as measured of it]");
  command->add_option("--svg", flags->svg, "write a picture: tokens/s by cache size and policy")
      ->check(not_empty());
  command->add_flag("--json", flags->json, "one JSON object on stdout");
  command->callback([flags, &code] {
    const auto done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
