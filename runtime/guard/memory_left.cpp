#include "runtime/guard/memory_left.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>

#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::size_t text_bytes_max = 16384;  // memory.stat has 2 to 3 KiB

bool parse_number(std::string_view text, std::uint64_t& value) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data();
}

}  // namespace

bool read_number(const char* path, std::uint64_t& value) noexcept {
  char buffer[64];
  return parse_number(read_start(path, buffer, sizeof buffer), value);
}

std::string_view read_start(const char* path, char* buffer, std::size_t bytes) noexcept {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::size_t length = 0;
  while (length < bytes) {
    const ssize_t got = read(fd, buffer + length, bytes - length);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    length += static_cast<std::size_t>(got);
  }
  close(fd);
  return {buffer, length};
}

bool number_after(std::string_view text, std::string_view key, std::uint64_t& value) noexcept {
  while (!text.empty()) {
    if (text.starts_with(key)) return parse_number(text.substr(key.size()), value);
    const std::size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return false;
}

MemoryFiles::MemoryFiles(const std::string& root) : meminfo_(root + "/proc/meminfo") {
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) {
      add_tree(root + "/sys/fs/cgroup/memory", path, true);
    } else if (controllers == ",,") {
      own_group_ = root + "/sys/fs/cgroup" + path;
      add_tree(root + "/sys/fs/cgroup", path, false);
    }
  }
}

void MemoryFiles::add_group(const std::string& folder, bool version1) {
  if (version1)
    groups_.push_back({folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes",
                       folder + "/memory.stat", "total_inactive_file "});
  else
    groups_.push_back({folder + "/memory.max", folder + "/memory.current", folder + "/memory.stat",
                       "inactive_file "});
}

// The folder of the process and all its parents up to the mount point, which inside a container is
// the process's own group.
void MemoryFiles::add_tree(const std::string& mount, std::string path, bool version1) {
  for (; path.size() > 1 && path.front() == '/'; path.resize(path.rfind('/')))
    add_group(mount + path, version1);
  add_group(mount, version1);
}

MemoryLeft MemoryFiles::read() const noexcept {
  char buffer[text_bytes_max];
  MemoryLeft left;
  std::uint64_t number = 0;
  constexpr std::size_t first_lines = 512;
  if (number_after(read_start(meminfo_.c_str(), buffer, first_lines), "MemAvailable:", number))
    left.system = number * KiB;
  for (const Group& group : groups_) {
    std::uint64_t limit = 0, usage = 0, inactive = 0;
    constexpr std::uint64_t no_limit = std::uint64_t{1} << 60;  // "max", or v1's huge number
    if (!read_number(group.limit.c_str(), limit) || limit > no_limit ||
        !read_number(group.usage.c_str(), usage))
      continue;
    number_after(read_start(group.stat.c_str(), buffer, sizeof buffer), group.inactive, inactive);
    const std::uint64_t held = usage - std::min(usage, inactive);
    const std::uint64_t available = limit - std::min(limit, held);
    if (available >= left.cgroup) continue;
    left.cgroup = available;
    left.cgroup_limit = limit;
  }
  return left;
}

}  // namespace millrace
