#include "runtime/doctor/doctor.h"

#include <fmt/format.h>

namespace millrace {

const char* health_name(Health health) noexcept {
  switch (health) {
    case Health::good:
      return "good";
    case Health::note:
      return "note";
    case Health::lacking:
      return "lacking";
  }
  return "lacking";
}

std::vector<Finding> examine_machine(const DoctorOptions& options) {
  return {examine_uring(options),      examine_direct_reads(options), examine_locked_memory(),
          examine_huge_pages(options), examine_cpu(options),          examine_memory(options),
          examine_drive(options),      examine_pressure(options)};
}

std::string doctor_table(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("  {:<8} {:<14} {}\n", health_name(finding.health), finding.name,
                        finding.found);
    if (!finding.advice.empty())
      text += fmt::format("  {:<8} {:<14} -> {}\n", "", "", finding.advice);
  }
  return text;
}

Json doctor_json(const std::vector<Finding>& findings) {
  Json all = Json::object();
  for (const Finding& finding : findings) {
    Json one = Json::object();
    one.set("health", health_name(finding.health));
    one.set("found", finding.found);
    one.set("advice", finding.advice.empty() ? Json() : Json(finding.advice));
    one.set("details", finding.details);
    all.set(finding.name, std::move(one));
  }
  return all;
}

}  // namespace millrace
