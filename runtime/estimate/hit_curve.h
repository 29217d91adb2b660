// How often an expert will be in the cache, before a token was ever decoded: a curve fitted to
// recorded routings, as a range.
#pragma once

#include <cstdint>

namespace millrace {

struct HitRange {
  double low = 0, middle = 0, high = 0;  // 0..1
};

// Hits of a warm cache that holds `cache_share` of the expert pool (0..1), of a model that takes
// `experts_used` of `experts` per layer. With c the share: 1 - (1 - c)^a, the a of a uniform router
// being 1; below one token's experts the hits fall with the cache. How a was fitted stands in the
// README. Pure.
HitRange expected_hits(double cache_share, std::uint32_t experts_used, std::uint32_t experts);

}  // namespace millrace
