#include "prefetch/eviction_policy.h"

#include <fmt/format.h>

#include <array>

#include "prefetch/policies/forecast.h"
#include "prefetch/policies/lfu.h"
#include "prefetch/policies/lru.h"
#include "prefetch/policies/s3fifo.h"
#include "runtime/base/log.h"

namespace millrace {
namespace {

constexpr std::array names = {"forecast", "lru", "lfu", "s3fifo"};

template <class Policy>
std::unique_ptr<EvictionPolicy> made() {
  return std::make_unique<Policy>();
}

}  // namespace

std::span<const char* const> eviction_policy_names() noexcept { return names; }

Result<std::unique_ptr<EvictionPolicy>> make_eviction_policy(std::string_view name) {
  if (name == "forecast") return made<ForecastPolicy>();
  if (name == "lru") return made<LruPolicy>();
  if (name == "lfu") return made<LfuPolicy>();
  if (name == "s3fifo") return made<S3FifoPolicy>();
  return Error{ErrorCode::usage, fmt::format("--policy {}: unknown cache policy; known: {}",
                                             printable(name), fmt::join(names, ", "))};
}

}  // namespace millrace
