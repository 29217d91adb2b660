// Which drive a path lies on: a name for people, and a key under which its measured profile is
// kept. Read from /proc and /sys; plain data.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/result.h"

namespace millrace {

struct Drive {
  // Stable as long as the drive is the same: serial number or identifier and size where the system
  // tells them, else the kernel's name; file system and source where there is no drive behind.
  std::string key;
  std::string name;                 // the kernel's ("nvme0n1", "dm-0"), or the mount's source
  std::string model;                // as the drive calls itself; empty: unknown
  std::string file_system;          // "ext4"; empty: unknown
  std::uint64_t size_bytes = 0;     // 0: unknown
  bool block_device = false;        // there is one, known to this kernel
  bool virtual_drive = false;       // of a virtual machine: the host may keep a cache of its own
  bool memory_file_system = false;  // tmpfs, ramfs: no drive at all
};

// The drive behind a file or folder. `io` error if the path cannot be looked at. `root` stands
// before /proc and /sys (empty: the real ones; tests give a folder).
Result<Drive> find_drive(const std::string& path, const std::string& root = "");

// The same for a device number, as stat(2) gives it.
Drive describe_drive(std::uint64_t device, const std::string& root = "");

}  // namespace millrace
