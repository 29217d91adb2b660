// millrace estimate: what a model would do on this machine, before it is run.
#include <fmt/format.h>

#include <memory>

#include "runtime/base/log.h"
#include "runtime/estimate/estimate.h"
#include "runtime/fixture/shapes.h"
#include "runtime/fixture/type_mix.h"
#include "tools/command.h"
#include "tools/user_folders.h"

namespace millrace::tools {

namespace {

struct EstimateFlags {
  EstimateOptions estimate;
  std::vector<std::string> ram;
  bool json = false;
};

Status run(EstimateFlags& flags) {
  install_interrupt_handler();
  flags.estimate.cancel = &cancel_flag();
  flags.estimate.profile_folder = cache_folder();
  for (const std::string& text : flags.ram) {
    const auto size = parse_size(text);
    if (!size || size->kind != SizeSpec::Kind::bytes || size->bytes == 0)
      return Error{ErrorCode::usage, fmt::format("--ram {}: give bytes, as 6G or 512M", text)};
    flags.estimate.ram_bytes.push_back(size->bytes);
  }
  MILLRACE_ASSIGN(const Estimate estimate, estimate_model(flags.estimate));
  ResultOutput out;
  out.write(flags.json ? estimate_json(estimate).dump(2) + "\n" : estimate_table(estimate));
  return out.status();
}

}  // namespace

void add_estimate(CLI::App& app, int& code) {
  auto flags = std::make_shared<EstimateFlags>();
  EngineConfig& config = flags->estimate.config;
  CLI::App* command = app.add_subcommand(
      "estimate",
      "say what a model would do on this machine, from its header and the drive's profile");
  command
      ->add_option(
          "MODEL,-m,--model", flags->estimate.model,
          "GGUF file (its beginning with the header is enough), or a shape: " + model_shape_names())
      ->required()
      ->check(not_empty());
  command->add_option("--type", flags->estimate.type, "of a shape's weights: " + type_mix_names())
      ->capture_default_str();
  command->add_option("--ram", flags->ram, "memory to plan with (repeatable) [a ladder]")
      ->take_all();
  command
      ->add_option("--routing", flags->estimate.routing_path,
                   "a trace of the model (run --trace) [what earlier runs left]")
      ->check(not_empty());
  command->add_option("-c,--ctx", config.context, "positions of context");
  command->add_option("-t,--threads", config.threads, "compute threads [all fast cores]")
      ->transform(whole_number("-t", 1, limits::threads_max));
  command->add_option("--isa", config.isa, "kernels [the best that the CPU has]")
      ->check(not_empty());
  command->add_flag("--json", flags->json, "print one JSON object on stdout");
  command->callback([flags, &code] {
    const Status done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
