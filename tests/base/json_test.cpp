#include "runtime/base/json.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

using namespace millrace;

namespace {

void check_refused(std::string_view text, const std::string& part, Json::ParseLimits limits = {}) {
  const auto parsed = Json::parse(text, limits);
  INFO(text);
  REQUIRE_FALSE(parsed.has_value());
  CHECK(parsed.error().code == ErrorCode::format);
  CHECK_THAT(parsed.error().what, Catch::Contains(part));
}

}  // namespace

TEST_CASE("json: what is printed parses to the same text") {
  Json inner = Json::array();
  inner.push(1).push(-2).push(0.5).push(true).push(nullptr).push("é\n\"");
  Json root;
  root.set("z", 1).set("a", inner).set("empty", Json::object());
  root.set("big", std::numeric_limits<std::uint64_t>::max());
  const std::string text = root.dump();
  CHECK(text ==
        R"({"z":1,"a":[1,-2,0.5,true,null,"é\n\""],"empty":{},"big":18446744073709551615})");
  const auto parsed = Json::parse(text);
  REQUIRE(parsed.has_value());
  CHECK(parsed->dump() == text);
  CHECK(Json::parse(root.dump(2))->dump() == text);
}

TEST_CASE("json: setting a key again replaces its value in place") {
  Json root;
  root.set("a", 1).set("b", 2).set("a", 3);
  CHECK(root.dump() == R"({"a":3,"b":2})");
}

TEST_CASE("json: numbers tell integers from reals and refuse what does not fit") {
  const auto parsed = Json::parse(R"([1, -9223372036854775808, 18446744073709551615, 1.5, "1"])");
  REQUIRE(parsed.has_value());
  const Json::Array& list = *parsed->as_array();
  std::int64_t integer = 0;
  double number = 0;
  CHECK(list[0].get_integer(integer));
  CHECK(integer == 1);
  CHECK(list[1].get_integer(integer));
  CHECK(integer == std::numeric_limits<std::int64_t>::min());
  CHECK_FALSE(list[2].get_integer(integer));
  CHECK_FALSE(list[3].get_integer(integer));
  CHECK(list[3].get_number(number));
  CHECK(number == 1.5);
  CHECK(list[0].get_number(number));
  CHECK_FALSE(list[4].get_number(number));
}

TEST_CASE("json: access to another kind gives nothing") {
  const auto parsed = Json::parse(R"({"a": [1], "b": "text", "c": true})");
  REQUIRE(parsed.has_value());
  CHECK(parsed->find("a")->as_array()->size() == 1);
  CHECK(*parsed->find("b")->as_string() == "text");
  CHECK(*parsed->find("c")->as_bool());
  CHECK(parsed->find("d") == nullptr);
  CHECK(parsed->find("b")->find("x") == nullptr);
  CHECK(parsed->find("b")->as_array() == nullptr);
  CHECK(parsed->as_string() == nullptr);
}

TEST_CASE("json: malformed text is refused with the place") {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\"}", "nul", "1 2", "'a'", "[1] x", "\"\\q\"", "01"})
    check_refused(text, "syntax error at byte");
  check_refused("\"\xff\"", "syntax error at byte");
  check_refused(std::string("\"a\0b\"", 5), "syntax error at byte");
}

TEST_CASE("json: a key that appears twice is refused") {
  check_refused(R"({"a": 1, "b": 2, "a": 3})", "\"a\" appears twice");
  check_refused(R"([{"a": {"b": 1, "b": 1}}])", "\"b\" appears twice");
  CHECK(Json::parse(R"([{"a": 1}, {"a": {"a": 1}}])").has_value());
}

TEST_CASE("json: depth and length are limited") {
  CHECK(Json::parse(std::string(64, '[') + std::string(64, ']')).has_value());
  check_refused(std::string(65, '[') + std::string(65, ']'), "deeper than 64");
  check_refused(std::string(1'000'000, '['), "deeper than 64");
  check_refused("[1,2]", "5 bytes exceeds the limit of 4", {.bytes_max = 4, .depth_max = 64});
}

TEST_CASE("json: what JSON cannot hold is printed as the nearest it can") {
  Json list = Json::array();
  list.push(std::numeric_limits<double>::infinity()).push(std::numeric_limits<double>::quiet_NaN());
  list.push("\xff");
  CHECK(list.dump() == "[null,null,\"\xEF\xBF\xBD\"]");
}
