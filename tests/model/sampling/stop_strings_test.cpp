#include "model/sampling/stop_strings.h"

#include <catch2/catch.hpp>

#include "tests/support/allocation_meter.h"

using namespace millrace;

namespace {

StopStrings make(std::vector<std::string> strings) {
  Result<StopStrings> made = StopStrings::create(std::move(strings));
  if (!made) FAIL(made.error().what);
  return std::move(made).value();
}

// The text that gets through when `text` comes in pieces of `step` bytes.
std::string passed(StopStrings stop, std::string_view text, std::size_t step) {
  std::string out;
  for (std::size_t at = 0; at < text.size() && !stop.stopped(); at += step)
    out += stop.push(text.substr(at, step));
  out += stop.flush();
  return out;
}

}  // namespace

TEST_CASE("stop strings: text is cut before the match, however it arrives") {
  const StopStrings stop = make({"STOP", "\n\nUser:"});
  for (const std::size_t step : {1U, 2U, 3U, 5U, 100U}) {
    INFO("pieces of " << step);
    CHECK(passed(stop, "one two STOP three", step) == "one two ");
    CHECK(passed(stop, "answer\n\nUser: more", step) == "answer");
    CHECK(passed(stop, "STOP", step).empty());
    CHECK(passed(stop, "no match here", step) == "no match here");
  }
}

TEST_CASE("stop strings: only what could become a match is held back") {
  StopStrings stop = make({"END"});
  CHECK(stop.push("abc") == "abc");
  CHECK(stop.push("dE") == "d");
  CHECK(stop.push("N") == "");
  CHECK(stop.push("x") == "ENx");
  CHECK(stop.push("EEN") == "E");
  CHECK_FALSE(stop.stopped());
  CHECK(stop.push("D and more") == "");
  CHECK(stop.stopped());
  CHECK(stop.matched() == "END");
  CHECK(stop.push("ignored") == "");
  CHECK(stop.flush() == "");
}

TEST_CASE("stop strings: a partial match at the end is text") {
  StopStrings stop = make({"###"});
  CHECK(stop.push("title ##") == "title ");
  CHECK(stop.flush() == "##");
}

TEST_CASE("stop strings: the first to be complete wins, in any pieces") {
  const StopStrings stop = make({"abcd", "bc"});
  for (const std::size_t step : {1U, 2U, 4U}) CHECK(passed(stop, "xabcd", step) == "xa");
  const StopStrings nested = make({"cd", "bcd"});
  for (const std::size_t step : {1U, 2U, 5U}) CHECK(passed(nested, "abcde", step) == "a");
}

TEST_CASE("stop strings: overlapping starts do not hide a match") {
  const StopStrings stop = make({"aab"});
  for (const std::size_t step : {1U, 2U, 3U}) CHECK(passed(stop, "aaab!", step) == "a");
}

TEST_CASE("stop strings: none and empty ones let everything pass") {
  CHECK(passed(StopStrings(), "text", 1) == "text");
  CHECK(passed(make({"", ""}), "text", 2) == "text");
}

TEST_CASE("stop strings: too many or too long ones are refused") {
  CHECK(StopStrings::create(std::vector<std::string>(65, "x")).error().code == ErrorCode::usage);
  CHECK(StopStrings::create({std::string(4097, 'x')}).error().code == ErrorCode::usage);
  CHECK(StopStrings::create({std::string(4096, 'x')}).has_value());
}

TEST_CASE("stop strings: steady text allocates nothing") {
  StopStrings stop = make({"never", "to be seen"});
  for (int i = 0; i < 10; ++i) stop.push("a word that warms up the buffers, never mind nev");
  millrace::testing::reset_allocations();
  for (int i = 0; i < 100; ++i) stop.push("some words n");
  CHECK(millrace::testing::allocations().calls == 0);
}
