#include "prefetch/eviction_policy.h"

#include <fmt/format.h>

#include "prefetch/policies/lru.h"
#include "runtime/base/log.h"

namespace millrace {

Result<std::unique_ptr<EvictionPolicy>> make_eviction_policy(std::string_view name) {
  if (name == "lru") return std::unique_ptr<EvictionPolicy>(std::make_unique<LruPolicy>());
  return Error{ErrorCode::usage,
               fmt::format("--policy {}: unknown cache policy; known: lru", printable(name))};
}

}  // namespace millrace
