#include "runtime/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/units.h"
#include "runtime/guard/memory_left.h"

namespace millrace {

namespace {

std::uint64_t number_in(const std::string& path, std::uint64_t otherwise) {
  std::uint64_t value = 0;
  return read_number(path.c_str(), value) ? value : otherwise;
}

// The number behind `key` in a file of this process; 0: there is none.
std::uint64_t own_number(const char* path, std::string_view key) noexcept {
  char buffer[8192];
  std::uint64_t value = 0;
  number_after(read_start(path, buffer, sizeof buffer), key, value);
  return value;
}

// Physical cores that we may run on: distinct (package, core) pairs; of the fastest kind where the
// kernel tells speeds.
unsigned count_cores(const std::string& root) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  std::uint64_t fastest = 0;
  std::vector<std::pair<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}", root, cpu);
    const std::uint64_t speed = number_in(folder + "/cpufreq/cpuinfo_max_freq", 0);
    const std::uint64_t package = number_in(folder + "/topology/physical_package_id", 0);
    const std::uint64_t core =
        number_in(folder + "/topology/core_id", static_cast<std::uint64_t>(cpu));
    cores.push_back({speed, {package, core}});
    fastest = std::max(fastest, speed);
  }
  std::set<std::pair<std::uint64_t, std::uint64_t>> distinct;
  for (const auto& [speed, core] : cores)
    if (speed * 10 >= fastest * 8) distinct.insert(core);  // efficiency cores clock far lower
  return std::max(1u, static_cast<unsigned>(distinct.size()));
}

}  // namespace

Machine read_machine(const std::string& root) {
  Machine machine;
  machine.cores = count_cores(root);
  const MemoryLeft left = MemoryFiles(root).read();
  if (left.system != MemoryLeft::unlimited) {
    machine.system_available = left.system;
  } else if (root.empty()) {
    // No /proc, or no descriptor left to read it: what is free now, a lower bound.
    const long pages = sysconf(_SC_AVPHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0)
      machine.system_available =
          static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
  }
  machine.memory_available = machine.system_available;
  machine.memory_source = "MemAvailable";
  if (left.cgroup != MemoryLeft::unlimited) {
    machine.cgroup_available = left.cgroup;
    if (left.cgroup < machine.memory_available) {
      machine.memory_available = left.cgroup;
      machine.memory_source = fmt::format("cgroup limit of {}", format_bytes(left.cgroup_limit));
    }
  }
  return machine;
}

Status require_memory(std::string_view what, std::uint64_t bytes) {
  constexpr std::uint64_t program_bytes = 12 * MiB;
  const Machine machine = read_machine();
  if (bytes + program_bytes <= machine.memory_available) return {};
  return Error{ErrorCode::memory,
               fmt::format("{} takes {}, {} are there ({}): give it more memory", what,
                           format_bytes(bytes + program_bytes),
                           format_bytes(machine.memory_available), machine.memory_source)};
}

std::uint64_t peak_rss_bytes() noexcept {
  // Not getrusage: its maximum survives exec and may be that of the program that started us.
  const std::uint64_t peak = own_number("/proc/self/status", "VmHWM:");
  if (peak > 0) return peak * KiB;
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * KiB
                                             : 0;
}

std::uint64_t kernel_read_bytes() noexcept { return own_number("/proc/self/io", "read_bytes:"); }

}  // namespace millrace
