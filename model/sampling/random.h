// A counter-based generator: the number at (seed, position, draw) is a function of these alone, so
// that retries and speculative decoding shift nothing. Philox 4x32 with 10 rounds (Salmon et al.,
// 2011). Pure functions, any thread, the same on every machine.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) noexcept;

// Uniform in [0, 1), a multiple of 2^-53. `position` is the index in the sequence of the token that
// is drawn, `draw` counts the numbers that one token needs.
double uniform_at(std::uint32_t seed, std::uint64_t position, std::uint32_t draw) noexcept;

// "Choose one": a seed from the system's entropy, never random_seed itself.
inline constexpr std::uint32_t random_seed = 0xFFFFFFFFU;
std::uint32_t resolve_seed(std::uint32_t seed);

}  // namespace millrace
