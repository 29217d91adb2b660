// A control group with a memory limit, for processes of a test; version 1 or 2, whichever can be
// written here.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cli/program.h"

namespace millrace::cli {

// A group of processes with a memory limit below our own; empty path: not possible here.
class LimitedGroup {
 public:
  explicit LimitedGroup(std::uint64_t bytes) : bytes_(bytes) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const std::size_t first = line.find(':');
      const std::size_t second = line.find(':', first + 1);
      if (second == std::string::npos) continue;
      const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
      const std::string own = line.substr(second + 1);
      if (contains(controllers, ",memory,"))
        create("/sys/fs/cgroup/memory", own, "memory.limit_in_bytes", "memory.usage_in_bytes");
      else if (controllers == ",,") create("/sys/fs/cgroup", own, "memory.max", "memory.current");
    }
  }
  ~LimitedGroup() {
    if (!path_.empty()) rmdir(path_.c_str());
  }
  const std::string& path() const noexcept { return path_; }
  // The calling process moves into it.
  bool join() const {
    const int fd = open((path_ + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
    const bool joined = fd >= 0 && write(fd, "0", 1) == 1;
    if (fd >= 0) close(fd);
    return joined;
  }
  // Below the limit, page cache counted as used.
  std::uint64_t left() const {
    std::uint64_t used = 0;
    std::ifstream(path_ + "/" + usage_) >> used;
    return bytes_ - std::min(bytes_, used);
  }

 private:
  void create(const std::string& mount, const std::string& own, const char* limit,
              const char* usage) {
    if (!path_.empty()) return;
    const std::string parent = std::filesystem::exists(mount + own) ? mount + own : mount;
    const std::string path = parent + "/millrace-test-" + std::to_string(getpid());
    if (mkdir(path.c_str(), 0755) != 0) return;
    std::ofstream file(path + "/" + limit);
    file << bytes_ << std::flush;
    usage_ = usage;
    if (file.good()) path_ = path;
    else rmdir(path.c_str());
  }
  std::uint64_t bytes_;
  std::string path_;
  const char* usage_ = "";
};

}  // namespace millrace::cli
