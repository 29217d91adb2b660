// What this machine has and lacks for streaming models, each with what to do about it. What
// `millrace doctor` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace millrace {

enum class Health : std::uint8_t {
  good,
  note,     // works, but better is possible
  lacking,  // costs speed or makes runs fail
};
const char* health_name(Health health) noexcept;

struct Finding {
  std::string name;
  Health health = Health::good;
  std::string found;   // one line, with the numbers
  std::string advice;  // what to do; empty if nothing
  Json details = Json::object();
};

struct DoctorOptions {
  std::string path = ".";      // a model, or the folder where models lie
  std::string profile_folder;  // of drive profiles
  std::string root;            // before /proc and /sys; empty: the real ones (tests give a folder)
};

// Looks, allocates up to 64 MiB, makes and drops small rings, and in a folder makes a scratch file
// of 16 MiB. Never fails: what cannot be examined is a finding.
std::vector<Finding> examine_machine(const DoctorOptions& options);

// The single examinations, in the order of the table.
Finding examine_uring(const DoctorOptions& options);
Finding examine_direct_reads(const DoctorOptions& options);
Finding examine_locked_memory();
Finding examine_huge_pages(const DoctorOptions& options);
Finding examine_cpu(const DoctorOptions& options);
Finding examine_memory(const DoctorOptions& options);
Finding examine_drive(const DoctorOptions& options);
Finding examine_pressure(const DoctorOptions& options);

// What other programs keep busy at this moment ("memory and cpu"), by the kernel's pressure of the
// last 10 s; empty: nothing, or it does not say. For who measures speeds.
std::string busy_now(const std::string& root);

std::string doctor_table(const std::vector<Finding>& findings);
Json doctor_json(const std::vector<Finding>& findings);

}  // namespace millrace
