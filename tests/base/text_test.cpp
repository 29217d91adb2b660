// utf8, printable() and hashes.
#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

using namespace millrace;

namespace {

const std::string replacement = "\xEF\xBF\xBD";

}  // namespace

TEST_CASE("utf8: valid characters of one to four bytes have their length") {
  CHECK(utf8_valid_length("a") == 1);
  CHECK(utf8_valid_length(std::string(1, '\0')) == 1);
  CHECK(utf8_valid_length("é!") == 2);
  CHECK(utf8_valid_length("€") == 3);
  CHECK(utf8_valid_length("\xED\x9F\xBF") == 3);      // U+D7FF, the last before the surrogates
  CHECK(utf8_valid_length("\xEE\x80\x80") == 3);      // U+E000, the first after them
  CHECK(utf8_valid_length("\xF4\x8F\xBF\xBF") == 4);  // U+10FFFF
}

TEST_CASE("utf8: overlong forms, surrogates, too large and broken characters are invalid") {
  for (const char* text : {"", "\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF",
                           "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                           "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE2\x82", "\xE2(", "\xF0\x9F\x98"})
    CHECK(utf8_valid_length(text) == 0);
}

TEST_CASE("utf8: only a proper start of a character is incomplete") {
  for (const char* text : {"", "\xC3", "\xE2", "\xE2\x82", "\xF0", "\xF0\x9F", "\xF0\x9F\x98"})
    CHECK(utf8_is_incomplete(text));
  for (const char* text : {"a", "\x80", "\xC3\xA9", "\xE0\x9F", "\xED\xA0", "\xF4\x90", "\xC0",
                           "\xE2\x82\xAC", "\xC3(", "\xFF"})
    CHECK_FALSE(utf8_is_incomplete(text));
}

TEST_CASE("utf8: each invalid byte is replaced, the rest is kept") {
  CHECK(utf8_replace_invalid("aé€😀") == "aé€😀");
  CHECK(utf8_replace_invalid("a\xFF\x62") == "a" + replacement + "b");
  CHECK(utf8_replace_invalid("\xE2\x82") == replacement + replacement);
  CHECK(utf8_replace_invalid("\xE2\x82"
                             "é") == replacement + replacement + "é");
  CHECK(utf8_replace_invalid("").empty());
}

TEST_CASE("printable: control characters and invalid bytes are spelled out") {
  CHECK(printable("plain é") == "plain é");
  CHECK(printable("\x1b[31m") == "\\x1b[31m");
  CHECK(printable(std::string("a\0b\n\x7f", 5)) == "a\\x00b\\x0a\\x7f");
  CHECK(printable("\xff\xc3") == "\\xff\\xc3");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\xc2\\x9b2J");  // the 8-bit form of ESC [
}

TEST_CASE("printable: characters that turn the direction of text or break lines are spelled out") {
  CHECK(printable("a\u202etxt.exe") == "a\\xe2\\x80\\xaetxt.exe");
  for (const char* each : {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202b",
                           "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"}) {
    const std::string shown = printable(each);
    CAPTURE(shown);
    CHECK(shown.size() == 4 * std::string(each).size());
    CHECK(shown.find_first_not_of("\\x0123456789abcdef") == std::string::npos);
  }
  // Their neighbours stay: joiners, dashes, thin spaces, letters of both directions.
  for (const char* each :
       {"\u200d", "\u2010", "\u2027", "\u202f", "\u2065", "\u206a", "\u0627", "\u05d0"})
    CHECK(printable(each) == each);
}

TEST_CASE("printable: long text is cut with an ellipsis") {
  CHECK(printable(std::string(200, 'a')) == std::string(200, 'a'));
  CHECK(printable(std::string(201, 'a')) == std::string(200, 'a') + "…");
  CHECK(printable("abcdef", 3) == "abc…");
}

TEST_CASE("hash: XXH3-64 of known inputs") {
  CHECK(hash_hex(hash64("", 0)) == "2d06800538d394c2");
  CHECK(hash_hex(0x1f) == "000000000000001f");
}

TEST_CASE("hash: a stream hashes as its bytes together, however they are cut") {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes += static_cast<char>(i * 31);
  for (const std::size_t step : {1u, 7u, 256u, 4999u}) {
    StreamHash stream;
    for (std::size_t at = 0; at < bytes.size(); at += step)
      stream.update(bytes.data() + at, std::min<std::size_t>(step, bytes.size() - at));
    CHECK(stream.value() == hash64(bytes.data(), bytes.size()));
    StreamHash moved = std::move(stream);
    moved.update("x", 1);
    CHECK(moved.value() == hash64((bytes + "x").data(), bytes.size() + 1));
  }
}
