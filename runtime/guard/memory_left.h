// What may still be taken of this machine's memory: MemAvailable, and what the control groups of
// this process (v1 and v2) leave. Read at start for the plan and again while a model runs. One
// thread at a time; reading allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Bytes; `unlimited` where there is no limit, or it cannot be read.
struct MemoryLeft {
  static constexpr std::uint64_t unlimited = UINT64_MAX;
  std::uint64_t system = unlimited;  // MemAvailable
  // Of the tightest group: its limit less what it holds and cannot drop. Inactive page cache counts
  // as free.
  std::uint64_t cgroup = unlimited;
  std::uint64_t cgroup_limit = unlimited;  // of that group
  std::uint64_t tightest() const noexcept { return cgroup < system ? cgroup : system; }
};

class MemoryFiles {
 public:
  // Finds the groups of this process and their parents in /proc and /sys under `root` (empty: the
  // real ones; tests give a folder).
  explicit MemoryFiles(const std::string& root = "");
  MemoryLeft read() const noexcept;
  // The folder of this process's own version 2 group; empty: there is none.
  const std::string& own_group() const noexcept { return own_group_; }

 private:
  struct Group {
    std::string limit, usage, stat;  // paths
    const char* inactive = nullptr;  // key in `stat`
  };
  void add_group(const std::string& folder, bool version1);
  void add_tree(const std::string& mount, std::string path, bool version1);

  std::string meminfo_;
  std::vector<Group> groups_;
  std::string own_group_;
};

// The first bytes of a file, as many as fit, into `buffer`; empty if it cannot be read.
std::string_view read_start(const char* path, char* buffer, std::size_t bytes) noexcept;
// The number that a file starts with; false: there is none.
bool read_number(const char* path, std::uint64_t& value) noexcept;
// The number behind `key` in a line that starts with it; false: there is none.
bool number_after(std::string_view text, std::string_view key, std::uint64_t& value) noexcept;

}  // namespace millrace
