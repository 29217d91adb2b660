#include <catch2/catch.hpp>

#include "runtime/base/units.h"

using namespace millrace;

TEST_CASE("sizes: bytes, binary suffixes, shares and all are understood") {
  CHECK(parse_size("123")->bytes == 123);
  CHECK(parse_size("6G")->bytes == 6 * GiB);
  CHECK(parse_size("512MiB")->bytes == 512 * MiB);
  CHECK(parse_size("1.5k")->bytes == 1536);
  CHECK(parse_size("25%")->resolve(1000, 7) == 250);
  CHECK(parse_size("all")->resolve(1000, 7) == 1000);
  CHECK(SizeSpec{}.resolve(1000, 7) == 7);
}

TEST_CASE("sizes: what is no size is refused with the text in the message") {
  for (const char* text : {"", "G", "6X", "-1", "101%", "nan", "inf", "1e30G", "6 G"}) {
    const auto parsed = parse_size(text);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().code == ErrorCode::usage);
    CHECK(parsed.error().what.find(text) != std::string::npos);
  }
}

TEST_CASE("sizes: printing keeps three significant digits") {
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(25 * MiB) == "25.0 MiB");
  CHECK(format_bytes(1023 * MiB) == "1023 MiB");
  CHECK(format_bytes(3 * GiB) == "3.00 GiB");
}
