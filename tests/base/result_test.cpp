#include "runtime/base/result.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

using namespace millrace;

namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return Error{ErrorCode::usage, std::to_string(number) + " is odd"};
  return number / 2;
}

Result<int> quarter(int number) {
  MILLRACE_ASSIGN(const int once, half(number));
  MILLRACE_ASSIGN(const int twice, half(once));
  return twice;
}

Status check_even(int number) {
  MILLRACE_TRY(half(number));
  return {};
}

}  // namespace

TEST_CASE("result: holds a value or an error, and errors pass upwards") {
  CHECK(*quarter(12) == 3);
  REQUIRE_FALSE(quarter(6).has_value());
  CHECK(quarter(6).error().what == "3 is odd");
  CHECK(quarter(7).error().code == ErrorCode::usage);
  CHECK(check_even(2).has_value());
  CHECK(check_even(3).error().what == "3 is odd");
}

TEST_CASE("result: values that only move are moved out") {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(made).value();
  CHECK(*taken == 5);
}

TEST_CASE("result: a value of type Error's members is no error") {
  const Result<std::string> text = std::string("fine");
  CHECK(text.has_value());
  CHECK(text->size() == 4);
}

TEST_CASE("errors: each code has its documented exit code") {
  CHECK(exit_code(ErrorCode::usage) == 1);
  CHECK(exit_code(ErrorCode::io) == 2);
  CHECK(exit_code(ErrorCode::format) == 3);
  CHECK(exit_code(ErrorCode::unsupported) == 3);
  CHECK(exit_code(ErrorCode::memory) == 4);
  CHECK(exit_code(ErrorCode::verify) == 5);
  CHECK(exit_code(ErrorCode::cancelled) == 130);
}
