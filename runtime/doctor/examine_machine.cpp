#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "io/pinned_memory.h"
#include "kernels/cpu_features.h"
#include "kernels/dispatch.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/doctor/doctor.h"
#include "runtime/machine.h"

namespace millrace {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return printable(line, 400);
}

// "always [madvise] never" -> "madvise".
std::string chosen(const std::string& line) {
  const auto open = line.find('[');
  const auto close = line.find(']');
  return open == std::string::npos || close < open ? line : line.substr(open + 1, close - open - 1);
}

constexpr const char* resources[] = {"memory", "io", "cpu"};

// The avg10 of a "some avg10=1.23 avg60=…" line, in percent; -1 if there is none.
double pressure_of(const std::string& line) {
  constexpr std::string_view key = "avg10=";
  const auto at = line.find(key);
  double value = -1;
  if (at == std::string::npos) return value;
  const char* start = line.data() + at + key.size();
  std::from_chars(start, line.data() + line.size(), value);
  return value;
}

std::string feature_names(const CpuFeatures& cpu) {
  std::string names;
  const auto add = [&](bool has, const char* name) {
    if (has) names += std::string(names.empty() ? "" : " ") + name;
  };
  add(cpu.avx2 && cpu.os_avx, "avx2");
  add(cpu.fma && cpu.os_avx, "fma");
  add(cpu.avxvnni && cpu.os_avx, "avxvnni");
  add(cpu.avx512f && cpu.os_avx512, "avx512");
  add(cpu.avx512vnni && cpu.os_avx512, "avx512vnni");
  add(cpu.amx_int8 && cpu.os_amx, "amx");
  add(cpu.neon, "neon");
  add(cpu.dotprod, "dotprod");
  return names.empty() ? "none" : names;
}

}  // namespace

Finding examine_locked_memory() {
  Finding finding;
  finding.name = "locked memory";
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  PinnedMemory memory;
  const std::uint64_t tried = 16 * MiB;
  const auto blocks = memory.allocate(1, tried);
  const bool locked = blocks && memory.stats().locked_bytes >= tried;
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  finding.found = unlimited ? "RLIMIT_MEMLOCK is unlimited"
                            : "RLIMIT_MEMLOCK is " + format_bytes(limit.rlim_cur);
  finding.found += fmt::format("; locking {} {}", format_bytes(tried), locked ? "works" : "fails");
  if (!unlimited || !locked) {
    finding.health = locked ? Health::note : Health::lacking;
    finding.advice =
        "`ulimit -l unlimited` (limits.conf: memlock; systemd: LimitMEMLOCK=infinity), so that all "
        "of cache and trunk can be locked and registered";
  }
  finding.details.set("limit_bytes", unlimited ? Json() : Json(std::uint64_t{limit.rlim_cur}))
      .set("locks", locked);
  return finding;
}

Finding examine_huge_pages(const DoctorOptions& options) {
  Finding finding;
  finding.name = "huge pages";
  const std::string setting =
      chosen(first_line(options.root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  const std::uint64_t available = read_machine(options.root).memory_available;
  const std::uint64_t tried = std::clamp<std::uint64_t>(available / 8, 4 * MiB, 64 * MiB);
  PinnedMemory memory;
  const auto blocks = memory.allocate(1, tried);
  const PinnedMemoryStats stats = memory.stats();
  finding.found = fmt::format("transparent huge pages: {}; of {} that were allocated {} are huge",
                              setting.empty() ? "not in this kernel" : setting,
                              format_bytes(stats.bytes), format_bytes(stats.huge_bytes));
  if (!blocks) finding.found = blocks.error().what;
  const bool whole = blocks && stats.huge_bytes >= stats.bytes / 10 * 9;
  if (!whole) {
    finding.health = Health::lacking;
    finding.advice =
        setting == "never" || setting.empty()
            ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: kernels and reads are "
              "up to twice as fast in huge pages"
            : "memory is scattered: echo 1 > /proc/sys/vm/compact_memory, or restart";
  }
  finding.details.set("setting", setting)
      .set("tried_bytes", stats.bytes)
      .set("huge_bytes", stats.huge_bytes);
  return finding;
}

Finding examine_cpu(const DoctorOptions& options) {
  Finding finding;
  finding.name = "cpu";
  const CpuFeatures cpu = detect_cpu_features();
  const char* isa = supported_kernels().back()->name;
  const unsigned cores = read_machine(options.root).cores;
  finding.found = fmt::format("{}; has {}; kernels: {}", counted(cores, "core", "to run on"),
                              feature_names(cpu), isa);
  if (std::string_view(isa) == "scalar") {
    finding.health = Health::lacking;
    finding.advice = "no vector instructions are used: expect a tenth of the usual speed";
  }
  Json names = Json::array();
  for (const KernelTable* table : supported_kernels()) names.push(table->name);
  finding.details.set("cores", cores).set("isa", isa).set("isas", std::move(names));
  return finding;
}

Finding examine_memory(const DoctorOptions& options) {
  Finding finding;
  finding.name = "memory";
  const Machine machine = read_machine(options.root);
  finding.found = format_bytes(machine.system_available) + " available";
  if (machine.cgroup_available > 0)
    finding.found +=
        fmt::format(", {} left in the control group", format_bytes(machine.cgroup_available));
  finding.found += fmt::format("; plans go by {}", machine.memory_source);
  if (machine.memory_available < machine.system_available) {
    finding.health = Health::note;
    finding.advice =
        "a control group allows less than the machine has: raise memory.max (v1: "
        "memory.limit_in_bytes) or the container's limit";
  }
  const auto limited = machine.cgroup_available > 0;
  finding.details.set("available_bytes", machine.memory_available)
      .set("system_available_bytes", machine.system_available)
      .set("cgroup_available_bytes", limited ? Json(machine.cgroup_available) : Json())
      .set("source", machine.memory_source);
  return finding;
}

std::string busy_now(const std::string& root) {
  constexpr double noticeable = 10;
  std::string busy;
  for (const char* resource : resources)
    if (pressure_of(first_line(root + "/proc/pressure/" + resource)) > noticeable)
      busy += std::string(busy.empty() ? "" : " and ") + resource;
  return busy;
}

Finding examine_pressure(const DoctorOptions& options) {
  Finding finding;
  finding.name = "pressure";
  bool known = true;
  for (const char* resource : resources) {
    const double share = pressure_of(first_line(options.root + "/proc/pressure/" + resource));
    known = known && share >= 0;
    finding.details.set(resource, share >= 0 ? Json(share / 100) : Json());
    if (share >= 0)
      finding.found +=
          fmt::format("{}{} {:.1f} %", finding.found.empty() ? "" : ", ", resource, share);
  }
  if (!known) {
    finding.health = Health::note;
    finding.found = "this kernel tells no pressure (PSI)";
    finding.advice = "start it with psi=1 (CONFIG_PSI), so that a shortage is noticed early";
    return finding;
  }
  finding.found += " of the last 10 s were waited for";
  const std::string busy = busy_now(options.root);
  if (!busy.empty()) {
    finding.health = Health::note;
    finding.advice = "other programs keep " + busy + " busy now: figures of speed will be too low";
  }
  return finding;
}

}  // namespace millrace
