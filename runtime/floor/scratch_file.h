// A file to measure reads with, made where there is none: it has no name once it exists, so that
// nothing is left behind however the program ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/base/function_ref.h"
#include "runtime/base/result.h"

namespace millrace {

// Owns the descriptor; the disk space is free again when it and all files opened by path() are
// closed. Move-only.
class ScratchFile {
 public:
  // At least this much free space is asked for.
  static constexpr std::uint64_t smallest_bytes = 16ull << 20;

  // Writes up to `bytes` (less where that is more than half of the free space, and after
  // `seconds_max`) of numbers that do not compress, and waits until they are on the drive. `io`
  // error: no space, not writable; `cancelled` when the flag is set. `progress` gets the share
  // done.
  static Result<ScratchFile> create(const std::string& folder, std::uint64_t bytes,
                                    double seconds_max, const std::atomic<bool>& cancel,
                                    FunctionRef<void(double)> progress);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ScratchFile(const ScratchFile&) = delete;
  ~ScratchFile();

  // Opens the same file again, in this process only.
  std::string path() const;
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  ScratchFile() = default;
  Status make(const std::string& folder);
  Status fill(const std::string& folder, std::uint64_t bytes, double seconds_max,
              const std::atomic<bool>& cancel, FunctionRef<void(double)> progress);
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
};

}  // namespace millrace
