#include "tests/cli/program.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace millrace::cli {

Words command(const Words& arguments) {
  Words all = {MILLRACE_PROGRAM};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

Outcome run_program(const Words& arguments, const Setup& setup) {
  Outcome outcome = Process(command(arguments), setup).finish();
  if (outcome.hung) FAIL("the program did not end");
  return outcome;
}

std::string embedded_model() {
  return MILLRACE_BUILD_ROOT "/model/embedded/little-tales-moe-42M-mxfp4.gguf";
}

std::string small_model(std::string_view name) {
  return MILLRACE_SOURCE_ROOT "/tests/oracles/models/" + std::string(name) + "/model.gguf";
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void flip_byte(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int before = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(before ^ 0x10));
  REQUIRE(file.good());
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  INFO(path);
  REQUIRE(file.good());
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

Json only_json(const Outcome& outcome) {
  CAPTURE(outcome.out, outcome.err);
  auto parsed = Json::parse(outcome.out);
  REQUIRE(parsed.has_value());
  REQUIRE(parsed->as_object() != nullptr);
  return *std::move(parsed);
}

Json run_json(const Words& arguments, int code) {
  Words all = {"run", "--json", "-q"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Outcome outcome = run_program(all);
  CAPTURE(arguments, outcome.err);
  REQUIRE(outcome.signal == 0);
  REQUIRE(outcome.code == code);
  return only_json(outcome);
}

const Json& at(const Json& object, std::string_view path) {
  const Json* value = &object;
  CAPTURE(path);
  while (value != nullptr && !path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    value = value->find(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  REQUIRE(value != nullptr);
  return *value;
}

double number_at(const Json& object, std::string_view path) {
  double value = 0;
  CAPTURE(path);
  REQUIRE(at(object, path).get_number(value));
  return value;
}

std::int64_t integer_at(const Json& object, std::string_view path) {
  std::int64_t value = 0;
  CAPTURE(path);
  REQUIRE(at(object, path).get_integer(value));
  return value;
}

std::string text_at(const Json& object, std::string_view path) {
  CAPTURE(path);
  REQUIRE(at(object, path).as_string() != nullptr);
  return *at(object, path).as_string();
}

bool bool_at(const Json& object, std::string_view path) {
  CAPTURE(path);
  REQUIRE(at(object, path).as_bool() != nullptr);
  return *at(object, path).as_bool();
}

std::vector<std::int64_t> integers(const Json& list) {
  REQUIRE(list.as_array() != nullptr);
  std::vector<std::int64_t> values;
  for (const Json& item : *list.as_array()) {
    REQUIRE(item.get_integer(values.emplace_back()));
  }
  return values;
}

}  // namespace millrace::cli
