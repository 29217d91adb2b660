// millrace doctor: what this machine has and lacks.
#include <memory>

#include "runtime/base/log.h"
#include "runtime/doctor/doctor.h"
#include "tools/command.h"
#include "tools/user_folders.h"

namespace millrace::tools {

namespace {

struct DoctorFlags {
  DoctorOptions doctor;
  bool json = false;
};

Status run(DoctorFlags& flags) {
  flags.doctor.profile_folder = cache_folder();
  const std::vector<Finding> findings = examine_machine(flags.doctor);
  ResultOutput out;
  out.write(flags.json ? doctor_json(findings).dump(2) + "\n" : doctor_table(findings));
  return out.status();
}

}  // namespace

void add_doctor(CLI::App& app, int& code) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* command = app.add_subcommand(
      "doctor", "say what this machine has and lacks for streaming, and what to do about it");
  command->add_option("PATH", flags->doctor.path, "a model, or the folder where models lie [here]")
      ->check(not_empty());
  command->add_flag("--json", flags->json, "print one JSON object on stdout");
  command->callback([flags, &code] {
    const Status done = run(*flags);
    code = done ? 0 : report_error(done.error());
  });
}

}  // namespace millrace::tools
