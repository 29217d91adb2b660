#include "runtime/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "runtime/base/units.h"

namespace millrace {

namespace {

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const auto text = read_text(path);
  return text ? parse_number(*text) : std::nullopt;
}

// The number behind `key` at the start of a line.
std::optional<std::uint64_t> find_number(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) return parse_number(std::string_view(line).substr(key.size()));
  return std::nullopt;
}

struct CgroupLimit {
  std::uint64_t available = std::numeric_limits<std::uint64_t>::max();
  std::string source;
};

struct CgroupFiles {
  const char *limit, *usage, *inactive;
};
constexpr CgroupFiles v1_files = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file "};
constexpr CgroupFiles v2_files = {"memory.max", "memory.current", "inactive_file "};

// Looks at one cgroup folder: what is left below its limit, counting inactive page cache as free.
void consider_folder(const std::string& folder, const CgroupFiles& files, CgroupLimit& tightest) {
  const auto limit = read_number(folder + "/" + files.limit);
  const auto usage = read_number(folder + "/" + files.usage);
  if (!limit || !usage || *limit > (std::uint64_t{1} << 60))
    return;  // "max", or v1's huge "no limit"
  const auto stat = read_text(folder + "/memory.stat");
  const std::uint64_t inactive = stat ? find_number(*stat, files.inactive).value_or(0) : 0;
  const std::uint64_t held = *usage - std::min(*usage, inactive);
  const std::uint64_t available = *limit - std::min(*limit, held);
  if (available >= tightest.available) return;
  tightest.available = available;
  tightest.source = fmt::format("cgroup limit of {}", format_bytes(*limit));
}

// The folder of the process and all its parents up to the mount point, which inside a container is
// the process's own group.
void consider_tree(const std::string& mount, std::string path, const CgroupFiles& files,
                   CgroupLimit& tightest) {
  for (; path.size() > 1 && path.front() == '/'; path.resize(path.rfind('/')))
    consider_folder(mount + path, files, tightest);
  consider_folder(mount, files, tightest);
}

CgroupLimit read_cgroups(const std::string& root) {
  CgroupLimit tightest;
  const auto groups = read_text(root + "/proc/self/cgroup");
  std::istringstream lines(groups.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos)
      consider_tree(root + "/sys/fs/cgroup/memory", path, v1_files, tightest);
    else if (controllers == ",,") consider_tree(root + "/sys/fs/cgroup", path, v2_files, tightest);
  }
  return tightest;
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
    const std::uint64_t speed = read_number(folder + "/cpufreq/cpuinfo_max_freq").value_or(0);
    const std::uint64_t package = read_number(folder + "/topology/physical_package_id").value_or(0);
    const auto core = read_number(folder + "/topology/core_id");
    cores.push_back({speed, {package, core.value_or(static_cast<std::uint64_t>(cpu))}});
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
  const auto meminfo = read_text(root + "/proc/meminfo");
  const auto available = meminfo ? find_number(*meminfo, "MemAvailable:") : std::nullopt;
  if (available) {
    machine.system_available = *available * KiB;
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
  const CgroupLimit cgroup = read_cgroups(root);
  if (!cgroup.source.empty()) {
    machine.cgroup_available = cgroup.available;
    if (cgroup.available < machine.memory_available) {
      machine.memory_available = cgroup.available;
      machine.memory_source = cgroup.source;
    }
  }
  return machine;
}

std::uint64_t peak_rss_bytes() noexcept {
  // Not getrusage: its maximum survives exec and may be that of the program that started us.
  const auto text = read_text("/proc/self/status");
  const auto peak = text ? find_number(*text, "VmHWM:") : std::nullopt;
  if (peak) return *peak * KiB;
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * KiB
                                             : 0;
}

std::uint64_t kernel_read_bytes() noexcept {
  const auto text = read_text("/proc/self/io");
  return text ? find_number(*text, "read_bytes:").value_or(0) : 0;
}

}  // namespace millrace
