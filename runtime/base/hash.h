// XXH3-64: state hashes and digests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace millrace {

// Hash of one block of bytes.
std::uint64_t hash64(const void* data, std::size_t bytes) noexcept;

// Hash of a stream of bytes: equal to hash64 of their concatenation. Not thread-safe.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;
  void update(const void* data, std::size_t bytes) noexcept;
  std::uint64_t value() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case hex digits.
std::string hash_hex(std::uint64_t hash);

}  // namespace millrace
