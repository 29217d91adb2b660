#include "model/sampling/random.h"

#include <catch2/catch.hpp>
#include <set>

using namespace millrace;

TEST_CASE("philox: the known answers of its authors") {
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
        PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: a number depends on seed, position and draw alone") {
  CHECK(uniform_at(1, 2, 3) == uniform_at(1, 2, 3));
  std::set<double> numbers;
  for (std::uint32_t seed : {0U, 1U, 0x80000000U})
    for (std::uint64_t position : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32})
      for (std::uint32_t draw : {0U, 1U}) numbers.insert(uniform_at(seed, position, draw));
  CHECK(numbers.size() == 18);
}

TEST_CASE("random: numbers fill [0, 1) evenly") {
  constexpr int count = 20000;
  double sum = 0;
  int low = 0;
  for (int i = 0; i < count; ++i) {
    const double number = uniform_at(7, static_cast<std::uint64_t>(i), 0);
    CHECK(number >= 0);
    CHECK(number < 1);
    sum += number;
    low += number < 0.1 ? 1 : 0;
  }
  CHECK(sum / count == Approx(0.5).margin(0.01));
  CHECK(low == Approx(count / 10).margin(150));
}

TEST_CASE("random: a wish for any seed is granted with a reportable one, others stay") {
  CHECK(resolve_seed(42) == 42);
  CHECK(resolve_seed(0) == 0);
  CHECK(resolve_seed(random_seed) != random_seed);
  CHECK(resolve_seed(random_seed) != resolve_seed(random_seed));
}
