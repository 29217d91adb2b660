#include "runtime/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "runtime/base/check.h"

namespace millrace {

std::uint64_t hash64(const void* data, std::size_t bytes) noexcept {
  return XXH3_64bits(data, bytes);
}

struct StreamHash::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    MILLRACE_CHECK(xxh != nullptr);
    MILLRACE_CHECK(XXH3_64bits_reset(xxh) == XXH_OK);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh); }
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) {}
StreamHash::~StreamHash() = default;
StreamHash::StreamHash(StreamHash&&) noexcept = default;
StreamHash& StreamHash::operator=(StreamHash&&) noexcept = default;

void StreamHash::update(const void* data, std::size_t bytes) noexcept {
  MILLRACE_CHECK(XXH3_64bits_update(state_->xxh, data, bytes) == XXH_OK);
}

std::uint64_t StreamHash::value() const noexcept { return XXH3_64bits_digest(state_->xxh); }

std::string hash_hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace millrace
