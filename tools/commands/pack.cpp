// millrace pack: the experts of a model in a file of their own.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "model/format/open.h"
#include "prefetch/routing_record.h"
#include "runtime/base/units.h"
#include "runtime/output_file.h"
#include "runtime/pack.h"
#include "runtime/replay_study.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct PackFlags {
  std::string model, out, order = "layer";
  bool quiet = false;
};

Status check_paths(const PackFlags& flags, const std::vector<NamedPath>& inputs) {
  MILLRACE_TRY(check_outputs({{"OUT", flags.out}}, inputs));
  return check_outputs({{"OUT", OutputFile::part_path(flags.out), true}}, inputs);
}

Status run(const PackFlags& flags) {
  MILLRACE_TRY(check_paths(flags, {{"MODEL", flags.model}, {"--order", flags.order}}));
  MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(flags.model));
  MILLRACE_ASSIGN(const ModelSpec spec, read_model_spec(checkpoint));
  std::vector<NamedPath> inputs;
  for (const std::string& file : spec.files) inputs.push_back({"MODEL", file});
  MILLRACE_TRY(check_paths(flags, inputs));
  std::vector<ExpertKey> order = layer_order(spec.experts);
  if (flags.order != "layer") {
    MILLRACE_ASSIGN(const RoutingRecord record, read_routing(flags.order));
    MILLRACE_ASSIGN(const ModelFigures model, read_model_figures(flags.model));
    MILLRACE_TRY(check_trace_of_model(record, flags.order, model));
    MILLRACE_ASSIGN(order, traced_order(spec.experts, record));
  }
  if (!flags.quiet && !order.empty())  // a dense model is refused
    std::fprintf(stderr, "millrace: %s: %zu experts, %s\n", flags.out.c_str(), order.size(),
                 format_bytes(spec.experts.pool_bytes()).c_str());
  install_interrupt_handler();
  ProgressLine progress(!flags.quiet && stderr_is_terminal());
  MILLRACE_ASSIGN(const PackResult result,
                  pack_model(spec, order, flags.out, progress, cancel_flag()));
  if (!flags.quiet && result.resumed > 0)
    std::fprintf(stderr, "millrace: %llu of them were there from an earlier run\n",
                 static_cast<unsigned long long>(result.resumed));
  return {};
}

}  // namespace

void add_pack(CLI::App& app, int& code) {
  auto flags = std::make_shared<PackFlags>();
  CLI::App* command = app.add_subcommand(
      "pack",
      "write a model's experts to a file of their own, aligned and with digests: damage is "
      "found, but runs were not faster from it where it was measured");
  command->add_option("MODEL,-m,--model", flags->model, "GGUF file")
      ->required()
      ->check(not_empty());
  command->add_option("OUT", flags->out, "packed pool to write; run MODEL --pool OUT reads it")
      ->required()
      ->check(not_empty());
  command
      ->add_option("--order", flags->order,
                   "layer, or a routing trace (CSV): its most wanted experts first in each layer")
      ->capture_default_str()
      ->check(not_empty());
  command->add_flag("-q,--quiet", flags->quiet, "errors only");
  command->callback([flags, &code] {
    const auto done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
