// millrace fixture: model files of known shapes with random weights.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "runtime/base/counted.h"
#include "runtime/base/limits.h"
#include "runtime/base/units.h"
#include "runtime/fixture/fixture.h"
#include "runtime/fixture/routing_check.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct FixtureFlags {
  std::string shape, type, out, routing;
  ShapeChanges changes;
  std::uint64_t seed = 1;
  bool quiet = false;
};

std::string summary(const FixtureOptions& options, const FixturePlan& plan) {
  const ModelShape& shape = options.shape;
  std::string text = fmt::format("{}, {}: {:.2f} GB ({}), {}", shape.name, options.mix->name,
                                 static_cast<double>(plan.file_bytes) * 1e-9,
                                 format_bytes(plan.file_bytes), counted(shape.layers, "layer"));
  if (shape.experts > 0)
    text +=
        fmt::format(", {} of {} of {}, pool {}, trunk {}", shape.experts_used,
                    counted(shape.experts, "expert"), format_bytes(plan.expert_bytes),
                    format_bytes(plan.pool_bytes), format_bytes(plan.file_bytes - plan.pool_bytes));
  return text;
}

// What was asked for beside what came out.
void show_routing(const RoutingTargets& targets, const RoutingCheck& check) {
  const auto row = [](const char* what, double reached, const std::optional<double>& target) {
    const std::string asked = target ? fmt::format(" (asked for {:.2f})", *target) : std::string();
    std::fprintf(stderr, "  %-9s  %.2f%s\n", what, reached, asked.c_str());
  };
  std::fprintf(stderr, "millrace: routing of %s through %s:\n",
               counted(check.tokens, "token").c_str(), counted(check.layers, "layer").c_str());
  row("zipf", check.measures.zipf, targets.zipf);
  row("reuse", check.measures.reuse, targets.reuse);
  row("lookahead", check.measures.lookahead, targets.lookahead);
}

Status run(const FixtureFlags& flags) {
  FixtureOptions options;
  MILLRACE_ASSIGN(options.shape, find_model_shape(flags.shape));
  MILLRACE_TRY(change_shape(options.shape, flags.changes));
  MILLRACE_ASSIGN(options.mix, find_type_mix(flags.type));
  options.seed = flags.seed;
  options.path = flags.out;
  RoutingTargets targets;
  if (!flags.routing.empty()) {
    MILLRACE_ASSIGN(targets, parse_routing_targets(flags.routing));
    MILLRACE_ASSIGN(options.routing,
                    plan_routing(options.shape, *options.mix, targets, options.seed));
  }
  const FixturePlan plan = plan_fixture(options);
  MILLRACE_TRY(check_outputs({{"OUT", flags.out}}, {}));
  if (!flags.quiet)
    std::fprintf(stderr, "millrace: %s: %s\n", flags.out.c_str(), summary(options, plan).c_str());
  install_interrupt_handler();
  ProgressLine progress(!flags.quiet && stderr_is_terminal());
  MILLRACE_TRY(write_fixture(options, plan, progress, cancel_flag()));
  if (!options.routing || flags.quiet) return {};
  const auto check = check_routing(options, progress, cancel_flag());
  progress.clear();
  if (!check)
    return Error{check.error().code,
                 flags.out + " is written, but cannot be run: " + check.error().what};
  show_routing(targets, *check);
  return {};
}

}  // namespace

void add_fixture(CLI::App& app, int& code) {
  auto flags = std::make_shared<FixtureFlags>();
  CLI::App* command = app.add_subcommand(
      "fixture", "write a model file of a known shape with random weights, for measurements");
  command->add_option("OUT", flags->out, "GGUF file to write")->required()->check(not_empty());
  command->add_option("--shape", flags->shape, model_shape_names())->required()->check(not_empty());
  command->add_option("--type", flags->type, type_mix_names())->required()->check(not_empty());
  const auto number = [&](const char* flag, std::uint32_t& value, const char* text,
                          std::uint32_t least, std::uint32_t most) {
    command->add_option(flag, value, text)->transform(whole_number(flag, least, most));
  };
  ShapeChanges& changes = flags->changes;
  number("--layers", changes.layers, "other numbers than the model's own: layers", 1,
         limits::layers_max);
  number("--width", changes.width, "of the hidden state", shape_width_min, shape_width_max);
  number("--experts", changes.experts, "per layer", 1, limits::experts_max);
  number("--experts-used", changes.experts_used, "per token", 1, limits::experts_used_max);
  number("--expert-width", changes.expert_width, "inner width of an expert", shape_width_min,
         shape_width_max);
  number("--vocabulary", changes.vocabulary, "tokens", shape_vocabulary_min,
         limits::vocabulary_max);
  number("--context", changes.context, "trained context that the file names", 1,
         limits::context_max);
  command
      ->add_option("--routing", flags->routing,
                   "zipf:S,reuse:R,lookahead:R: popularity of experts, share of the token before's "
                   "experts, share that the next layer's router finds early")
      ->check(not_empty());
  command->add_option("--seed", flags->seed, "other weights")
      ->transform(decimal())
      ->capture_default_str();
  command->add_flag("-q,--quiet", flags->quiet, "errors only");
  command->callback([flags, &code] {
    const auto done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
