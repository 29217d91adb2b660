// Typed access to metadata.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "model/format/checkpoint.h"

using namespace millrace;

namespace {

Checkpoint sample() {
  Checkpoint::Parts parts;
  parts.files = {"dir/m\x1b.gguf"};
  const auto add = [&](const char* key, MetaValue value) {
    parts.keys.emplace_back(key);
    parts.meta.emplace(key, std::move(value));
  };
  add("general.architecture", std::string("llama"));
  add("flag", true);
  add("small", std::int64_t{7});
  add("negative", std::int64_t{-1});
  add("max", std::uint64_t{4294967295u});
  add("big", std::uint64_t{4294967296u});
  add("real", 0.25);
  add("huge", 1e300);
  add("nan", std::nan(""));
  add("signed list", std::vector<std::int64_t>{1, 2, 3});
  add("unsigned list", std::vector<std::uint64_t>{4, 5, 6, 4294967296u});
  add("mixed signs", std::vector<std::int64_t>{1, -2});
  add("real list", std::vector<double>{0.5, -std::numeric_limits<double>::infinity()});
  add("huge list", std::vector<double>{0.5, 1e300});
  add("text list", std::vector<std::string>{"a", "b"});
  TensorInfo tensor;
  tensor.name = "t";
  parts.tensors.push_back(tensor);
  return Checkpoint(std::move(parts));
}

void check_error(const Result<bool>& result, const std::string& key, const std::string& part) {
  REQUIRE_FALSE(result.has_value());
  INFO(result.error().what);
  CHECK(result.error().code == ErrorCode::format);
  CHECK_THAT(result.error().what,
             Catch::StartsWith("dir/m\\x1b.gguf: key '" + key + "': ") && Catch::Contains(part));
}

}  // namespace

TEST_CASE("checkpoint: absent keys are false and leave the output alone") {
  const Checkpoint model = sample();
  std::string text = "kept";
  std::uint32_t number = 5;
  float real = 5;
  bool flag = true;
  std::vector<std::uint32_t> per_layer = {5};
  std::vector<std::int32_t> integers = {5};
  std::vector<float> reals = {5};
  CHECK_FALSE(*model.has_string("none", text));
  CHECK_FALSE(*model.has_u32("none", number));
  CHECK_FALSE(*model.has_f32("none", real));
  CHECK_FALSE(*model.has_bool("none", flag));
  CHECK_FALSE(*model.has_u32_per_layer("none", 2, per_layer));
  CHECK_FALSE(*model.has_i32_array("none", integers));
  CHECK_FALSE(*model.has_f32_array("none", reals));
  CHECK(model.string_array("none") == nullptr);
  CHECK(model.find_meta("none") == nullptr);
  CHECK(model.find_tensor("none") == nullptr);
  CHECK(text == "kept");
  CHECK(number == 5);
  CHECK(per_layer == std::vector<std::uint32_t>{5});
}

TEST_CASE("checkpoint: integer keys take every integer that fits and nothing else") {
  const Checkpoint model = sample();
  std::uint32_t out = 0;
  CHECK(*model.has_u32("small", out));
  CHECK(out == 7);
  CHECK(*model.has_u32("max", out));
  CHECK(out == 4294967295u);
  check_error(model.has_u32("negative", out), "negative", "-1");
  check_error(model.has_u32("big", out), "big", "4294967296");
  check_error(model.has_u32("real", out), "real", "is a float, expected an integer");
  check_error(model.has_u32("flag", out), "flag", "is a bool");
  check_error(model.has_u32("signed list", out), "signed list", "is an array of integers");
  check_error(model.has_u32("general.architecture", out), "general.architecture", "is a string");
}

TEST_CASE("checkpoint: float keys take floats and integers") {
  const Checkpoint model = sample();
  float out = 0;
  CHECK(*model.has_f32("real", out));
  CHECK(out == 0.25f);
  CHECK(*model.has_f32("negative", out));
  CHECK(out == -1.0f);
  check_error(model.has_f32("huge", out), "huge", "1e+300");
  check_error(model.has_f32("nan", out), "nan", "nan");
  check_error(model.has_f32("text list", out), "text list", "is an array of strings");
}

TEST_CASE("checkpoint: bool and string keys take only their own kind") {
  const Checkpoint model = sample();
  bool flag = false;
  std::string text;
  CHECK(*model.has_bool("flag", flag));
  CHECK(flag);
  check_error(model.has_bool("small", flag), "small", "expected a bool");
  CHECK(*model.has_string("general.architecture", text));
  CHECK(text == "llama");
  check_error(model.has_string("flag", text), "flag", "expected a string");
}

TEST_CASE("checkpoint: per-layer keys are a scalar or an array that is long enough") {
  const Checkpoint model = sample();
  std::vector<std::uint32_t> out;
  CHECK(*model.has_u32_per_layer("small", 3, out));
  CHECK(out == std::vector<std::uint32_t>{7, 7, 7});
  CHECK(*model.has_u32_per_layer("signed list", 2, out));
  CHECK(out == std::vector<std::uint32_t>{1, 2});
  CHECK(*model.has_u32_per_layer("unsigned list", 3, out));
  CHECK(out == std::vector<std::uint32_t>{4, 5, 6});
  check_error(model.has_u32_per_layer("signed list", 4, out), "signed list",
              "3 entries for a model of 4 layers");
  check_error(model.has_u32_per_layer("unsigned list", 4, out), "unsigned list", "entry 3");
  check_error(model.has_u32_per_layer("mixed signs", 2, out), "mixed signs", "entry 1 is -2");
  check_error(model.has_u32_per_layer("real list", 2, out), "real list", "array of floats");
}

TEST_CASE("checkpoint: arrays are converted when every entry fits") {
  const Checkpoint model = sample();
  std::vector<std::int32_t> integers;
  CHECK(*model.has_i32_array("mixed signs", integers));
  CHECK(integers == std::vector<std::int32_t>{1, -2});
  check_error(model.has_i32_array("unsigned list", integers), "unsigned list", "entry 3");
  check_error(model.has_i32_array("small", integers), "small", "expected an array of integers");
  std::vector<float> reals;
  CHECK(*model.has_f32_array("real list", reals));
  CHECK(reals == std::vector<float>{0.5f, -std::numeric_limits<float>::infinity()});
  CHECK(*model.has_f32_array("mixed signs", reals));
  CHECK(reals == std::vector<float>{1, -2});
  check_error(model.has_f32_array("huge list", reals), "huge list", "entry 1");
  check_error(model.has_f32_array("text list", reals), "text list", "expected an array of floats");
  REQUIRE(model.string_array("text list") != nullptr);
  CHECK(model.string_array("text list")->size() == 2);
  CHECK(model.string_array("real list") == nullptr);
}

TEST_CASE("checkpoint: tensors are found by name after a move too") {
  Checkpoint first = sample();
  const Checkpoint moved = std::move(first);
  REQUIRE(moved.find_tensor("t") != nullptr);
  CHECK(moved.find_tensor("t") == &moved.tensors()[0]);
  CHECK(moved.architecture() == "llama");
  CHECK(moved.display_path() == "dir/m\\x1b.gguf");
}
