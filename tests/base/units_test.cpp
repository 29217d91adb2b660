#include <catch2/catch.hpp>

#include "runtime/base/counted.h"
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

TEST_CASE("numbers stand with their nouns as people read them") {
  CHECK(counted(0, "slot") == "0 slots");
  CHECK(counted(1, "layer") == "1 layer");
  CHECK(counted(1, "token", "of prompt") == "1 token of prompt");
  CHECK(counted(2, "token", "of prompt") == "2 tokens of prompt");
  CHECK(age_text(-5) == "just now");
  CHECK(age_text(59) == "just now");
  CHECK(age_text(60) == "1 minute ago");
  CHECK(age_text(3 * 3600) == "3 hours ago");
  CHECK(age_text(86'400) == "1 day ago");
}

TEST_CASE("a number out of its range is told with flag, value and range") {
  CHECK(check_range("-t", 1, 0, 256));
  const auto refused = check_range("-t", 257, 0, 256);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::usage);
  CHECK(refused.error().what == "-t 257: must be 0 to 256");
}
