#include "model/sampling/random.h"

#include <random>

namespace millrace {

namespace {

constexpr std::uint64_t multiplier_0 = 0xD2511F53U;
constexpr std::uint64_t multiplier_1 = 0xCD9E8D57U;
constexpr std::uint32_t key_step_0 = 0x9E3779B9U;
constexpr std::uint32_t key_step_1 = 0xBB67AE85U;
constexpr int rounds = 10;

}  // namespace

PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) noexcept {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = multiplier_0 * counter[0];
    const std::uint64_t b = multiplier_1 * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += key_step_0;
    key[1] += key_step_1;
  }
  return counter;
}

double uniform_at(std::uint32_t seed, std::uint64_t position, std::uint32_t draw) noexcept {
  const PhiloxCounter words = philox4x32_10(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), draw, 0},
      {seed, 0});
  const std::uint64_t bits = (std::uint64_t{words[1]} << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

std::uint32_t resolve_seed(std::uint32_t seed) {
  if (seed != random_seed) return seed;
  std::random_device device;
  std::uint32_t chosen = device();
  while (chosen == random_seed) chosen = device();
  return chosen;
}

}  // namespace millrace
