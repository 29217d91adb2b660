#include "io/alignment.h"

#include <catch2/catch.hpp>

using namespace millrace;

TEST_CASE("A range is rounded outward to whole blocks and remembers where it starts") {
  REQUIRE(block_window(0, 1, 512) == BlockWindow{0, 512, 1, 0});
  REQUIRE(block_window(511, 2, 512) == BlockWindow{0, 1024, 513, 511});
  REQUIRE(block_window(512, 512, 512) == BlockWindow{512, 512, 512, 0});
  REQUIRE(block_window(4096 + 128, 4096, 4096) == BlockWindow{4096, 8192, 4224, 128});
  REQUIRE(block_window(1234567, 89, 1) == BlockWindow{1234567, 89, 89, 0});
}

TEST_CASE("The largest window is reached by some start and exceeded by none") {
  for (const std::uint32_t block : {1u, 512u, 4096u}) {
    for (const std::uint64_t bytes : {1u, 100u, 511u, 512u, 513u, 4096u, 10000u}) {
      std::uint64_t largest = 0;
      for (std::uint64_t offset = 0; offset < block; ++offset)
        largest = std::max(largest, block_window(offset, bytes, block).bytes);
      CAPTURE(block, bytes);
      REQUIRE(largest == block_window_bytes_max(bytes, block));
    }
  }
  REQUIRE(block_window_bytes_max(0, 4096) == 0);
}
