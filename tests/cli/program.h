// The program and the models that the tests give it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "tests/cli/process.h"

namespace millrace::cli {

using Words = std::vector<std::string>;
inline Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// The built program in front of its arguments.
Words command(const Words& arguments);
// Runs it to its end.
Outcome run_program(const Words& arguments, const Setup& setup = {});

// Models: the one in the build folder that is taken when none is named (25 MB, 4096 tokens of
// vocabulary), and small ones with random weights (tests/oracles/models/).
std::string embedded_model();
std::string small_model(std::string_view name = "qwen3moe-mxfp4");

bool contains(std::string_view text, std::string_view part);
std::string read_file(const std::string& path);
// Damages a file: one bit of the byte at an offset.
void flip_byte(const std::string& path, std::uint64_t at);

// The one JSON object that stdout is; fails the test otherwise.
Json only_json(const Outcome& outcome);
// Runs `run --json -q` with the arguments, which must end with `code`.
Json run_json(const Words& arguments, int code = 0);
// A value by its path, "io.bytes_read"; fails the test if it is not there or of another kind.
const Json& at(const Json& object, std::string_view path);
double number_at(const Json& object, std::string_view path);
std::int64_t integer_at(const Json& object, std::string_view path);
std::string text_at(const Json& object, std::string_view path);
bool bool_at(const Json& object, std::string_view path);
std::vector<std::int64_t> integers(const Json& list);

}  // namespace millrace::cli
