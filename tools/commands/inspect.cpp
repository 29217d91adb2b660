// millrace inspect: what a model file holds, and whether it runs here.
#include <memory>
#include <string>

#include "runtime/embedded_model.h"
#include "runtime/inspect.h"
#include "tools/command.h"

namespace millrace::tools {

namespace {

struct InspectFlags {
  std::string model;
  bool tensors = false, json = false;
};

Status run(const InspectFlags& flags) {
  std::string path = flags.model;
  if (path.empty()) {
    MILLRACE_ASSIGN(path, embedded_model_path());
  }
  MILLRACE_ASSIGN(const ModelInspection inspection, inspect_model(path));
  ResultOutput out;
  out.write(flags.json ? inspection_json(inspection, flags.tensors).dump(2) + "\n"
                       : inspection_text(inspection, flags.tensors));
  return out.status();
}

}  // namespace

void add_inspect(CLI::App& app, int& code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command =
      app.add_subcommand("inspect", "what a model file holds, and whether it runs here");
  command
      ->add_option("MODEL,-m,--model", flags->model,
                   "model file or folder; default: the embedded model")
      ->check(not_empty());
  command->add_flag("--tensors", flags->tensors, "also the list of tensors");
  command->add_flag("--json", flags->json, "one JSON object on stdout");
  command->callback([flags, &code] {
    const auto done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
