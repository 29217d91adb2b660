#include "io/alignment.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace millrace;

TEST_CASE("A range is rounded outward to whole blocks and remembers where it starts") {
  REQUIRE(block_window(0, 1, 512) == BlockWindow{0, 512, 1, 0});
  REQUIRE(block_window(511, 2, 512) == BlockWindow{0, 1024, 513, 511});
  REQUIRE(block_window(512, 512, 512) == BlockWindow{512, 512, 512, 0});
  REQUIRE(block_window(4096 + 128, 4096, 4096) == BlockWindow{4096, 8192, 4224, 128});
  REQUIRE(block_window(1234567, 89, 1) == BlockWindow{1234567, 89, 89, 0});
}

TEST_CASE("Equal pieces cover a read in whole blocks, none far from the size asked for") {
  for (const std::uint64_t piece : {4096u, 65536u, 1048576u}) {
    for (std::uint64_t blocks = 1; blocks < 700; blocks += 3) {
      const std::uint64_t bytes = blocks * 4096;
      std::uint64_t rest = bytes, smallest = bytes, largest = 0;
      while (rest > 0) {
        const std::uint64_t cut = even_piece_bytes(rest, piece, 4096);
        REQUIRE(cut > 0);
        REQUIRE(cut <= rest);
        REQUIRE(cut % 4096 == 0);
        smallest = std::min(smallest, cut);
        largest = std::max(largest, cut);
        rest -= cut;
      }
      CAPTURE(piece, bytes, smallest, largest);
      REQUIRE(2 * largest <= 3 * std::max<std::uint64_t>(piece, 4096));
      REQUIRE(3 * (smallest + 4096) >= 2 * std::min(piece, bytes));
      REQUIRE(largest - smallest <= 4096);
    }
  }
  REQUIRE(even_piece_bytes(1'179'648, 1'048'576, 4096) == 1'179'648);
  REQUIRE(even_piece_bytes(1'703'936, 1'048'576, 4096) == 851'968);
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
