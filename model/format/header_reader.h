// Reads the start of a file forwards, through a buffer, and never trusts what it reads: every
// length is compared with the bytes that are left, and everything that is kept is claimed from one
// memory budget before it is allocated. Used by one thread, for the length of one open.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/base/result.h"
#include "runtime/base/units.h"

namespace millrace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

// The bytes of one file: on disk, or in memory for tests. Borrowed for the length of a call.
struct ByteSource {
  std::string path;              // for messages
  std::uint64_t size_bytes = 0;  // below 2^63
  // Fills `target` with exactly `bytes` bytes from `offset`, or fails with `io`.
  FunctionRef<Status(std::uint64_t offset, void* target, std::uint64_t bytes)> read;
};

class HeaderReader {
 public:
  // What the metadata of one file may take in memory. A vocabulary of 4 million tokens with its
  // merges needs about 400 MiB.
  static constexpr std::uint64_t memory_bytes_max = 1 * GiB;
  // Reads grow from the first to the second, so that small headers cost little and large ones few
  // calls.
  static constexpr std::uint64_t chunk_bytes_min = 64 * KiB;
  static constexpr std::uint64_t chunk_bytes_max = 1 * MiB;

  explicit HeaderReader(const ByteSource& source) : source_(source) {}
  HeaderReader(const HeaderReader&) = delete;
  HeaderReader& operator=(const HeaderReader&) = delete;

  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t size_bytes() const noexcept { return source_.size_bytes; }
  std::uint64_t bytes_left() const noexcept { return source_.size_bytes - position_; }
  // Taken from the source so far, with what was read ahead.
  std::uint64_t bytes_read() const noexcept { return buffer_end_; }

  // Names what comes next ("key 'general.name'"), for messages. Text from the file must be
  // printable().
  void enter(std::string where) { where_ = std::move(where); }
  // An error that says file, place and `detail`.
  Error error(ErrorCode code, std::string_view detail) const;
  Error malformed(std::string_view detail) const { return error(ErrorCode::format, detail); }

  // Takes the memory for `count` things of `bytes_each` from the budget.
  Status claim(std::uint64_t count, std::uint64_t bytes_each);

  // Copies the next `count` bytes. Fails with `format` if the file ends before.
  Status bytes(void* target, std::uint64_t count);

  template <class T>
  Result<T> number() {
    T value{};
    MILLRACE_TRY(bytes(&value, sizeof value));
    return value;
  }

  // A u64 length and as many bytes, any bytes; at most `bytes_max` of them.
  Result<std::string> string(std::uint64_t bytes_max);

 private:
  Status refill();

  const ByteSource& source_;
  std::string where_ = "header";
  std::vector<std::byte> buffer_;  // the bytes [buffer_begin_, buffer_end_) of the file
  std::uint64_t buffer_begin_ = 0;
  std::uint64_t buffer_end_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace millrace
