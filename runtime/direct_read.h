// Blocking reads of any stretch of a file past the page cache, for work that reads much once: the
// window around the stretch is rounded to the device's blocks and lands in memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "io/file.h"
#include "runtime/base/result.h"

namespace millrace {

// Memory that grows when more is asked for; in huge pages where the system gives them. One thread.
class ReadBuffer {
 public:
  static constexpr std::size_t alignment = std::size_t{2} << 20;
  // At least `bytes`; what was in it is lost when it grows. `memory` error.
  Result<std::byte*> room(std::uint64_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::uint64_t bytes_ = 0;
};

// The bytes [offset, offset + bytes) of the file, in `buffer` until the next call with it. `io`
// error with file, offset and cause; also where the file ends before. `memory` error.
Result<const std::byte*> read_stretch(const File& file, std::uint64_t offset, std::uint64_t bytes,
                                      ReadBuffer& buffer);

}  // namespace millrace
