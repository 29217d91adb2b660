#include "tools/commands/kernels.h"

#include <memory>

#include "runtime/base/log.h"
#include "runtime/kernel_study/kernel_study.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct KernelFlags {
  KernelStudyOptions study;
  std::string size, activations = "q8";
  bool json = false, quiet = false;
};

Status run(KernelFlags& flags) {
  if (flags.quiet) set_log_level(LogLevel::error);
  install_interrupt_handler();
  if (!flags.size.empty()) {
    const auto size = parse_size(flags.size);
    if (!size || size->kind != SizeSpec::Kind::bytes || size->bytes == 0)
      return Error{ErrorCode::usage, "--size " + flags.size + ": give bytes, as 256M or 1G"};
    flags.study.memory_bytes = size->bytes;
  }
  flags.study.float_activations = flags.activations == "f32";
  ProgressLine progress(!flags.quiet && stderr_is_terminal());
  MILLRACE_ASSIGN(const KernelStudy study, study_kernels(flags.study, progress, cancel_flag()));
  ResultOutput out;
  out.write(flags.json ? kernel_study_json(study).dump(2) + "\n" : kernel_table_text(study));
  MILLRACE_TRY(check_study(study));
  if (study.cancelled) return Error{ErrorCode::cancelled, "cancelled while measuring kernels"};
  return out.status();
}

}  // namespace

void add_kernels(CLI::App& app, int& code) {
  auto flags = std::make_shared<KernelFlags>();
  KernelStudyOptions& study = flags->study;
  CLI::App* command = app.add_subcommand(
      "kernels",
      "measure every weight product and decoder of this CPU beside its limit (attention and what "
      "else a layer does are no part of it); 5 if one is wrong; Ctrl-C prints what is done");
  command
      ->add_option("--type", study.types,
                   "of weights, as MXFP4,Q4_K [all, which take many minutes]")
      ->delimiter(',')
      ->take_all()
      ->check(not_empty());
  command->add_option("--isa", study.isas, "instruction sets, beside scalar [all of this CPU]")
      ->delimiter(',')
      ->take_all()
      ->check(not_empty());
  command->add_option("-t,--threads", study.threads, "numbers of threads, as 1,2 [1 and all cores]")
      ->delimiter(',')
      ->take_all();
  command->add_option("--activations", flags->activations, "q8 or f32")
      ->check(CLI::IsMember({"q8", "f32"}))
      ->capture_default_str();
  command->add_option("--columns", study.columns, "of the matrices, a multiple of 256")
      ->capture_default_str();
  command->add_option("--tokens", study.tokens, "of the figure for many tokens; 1: none")
      ->capture_default_str();
  command
      ->add_option(
          "--size", flags->size,
          "weights that come from memory [twice the caches]; below the caches it measures these")
      ->check(not_empty());
  command
      ->add_option("--repeats", study.repeats,
                   "of each measurement; below 5 shares above 1.05 are not judged")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "print one JSON object on stdout");
  command->add_flag("-q,--quiet", flags->quiet, "errors only; no progress");
  command->callback([flags, &code] {
    const Status done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
