#include "tests/support/oracle_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "runtime/base/json.h"

namespace millrace::test {

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<float> read_floats(const std::string& path) {
  const std::string bytes = read_bytes(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

namespace {

Json read_json(const std::string& path) {
  auto parsed = Json::parse(read_bytes(path));
  if (!parsed) throw std::runtime_error(path + ": " + parsed.error().what);
  return *std::move(parsed);
}

const Json& member(const Json& object, const char* key) {
  const Json* found = object.find(key);
  if (found == nullptr) throw std::runtime_error(std::string("no key ") + key);
  return *found;
}

double number(const Json& value) {
  double out = 0;
  if (!value.get_number(out)) throw std::runtime_error("not a number");
  return out;
}

template <class T>
std::vector<T> numbers(const Json& list) {
  std::vector<T> out;
  for (const Json& item : *list.as_array()) out.push_back(static_cast<T>(number(item)));
  return out;
}

}  // namespace

OracleFolder read_oracle(const std::string& path) {
  OracleFolder oracle;
  oracle.path = path;
  oracle.name = std::filesystem::path(path).filename().string();
  oracle.model_path = path + "/model.gguf";
  const Json about = read_json(path + "/oracle.json");
  const Json& logits = member(about, "logits");
  const auto shape = numbers<std::size_t>(member(logits, "shape"));
  oracle.positions = shape.at(0);
  oracle.vocabulary = shape.at(1);
  oracle.deviation = number(member(logits, "std"));
  oracle.prompt = numbers<TokenId>(member(read_json(path + "/tokens.json"), "ids"));
  oracle.quantized = std::filesystem::exists(path + "/logits_deq.f32");
  oracle.logits = read_floats(path + (oracle.quantized ? "/logits_deq.f32" : "/logits.f32"));
  const Json greedy = read_json(path + "/greedy.json");
  oracle.greedy = numbers<TokenId>(member(greedy, oracle.quantized ? "ids_deq" : "ids"));
  oracle.greedy_margin =
      numbers<double>(member(greedy, oracle.quantized ? "margin_deq" : "margin"));
  if (oracle.quantized) {
    const Json& rounding = member(member(about, "tolerance"), "quantized_run_vs_decoded_f32_run");
    oracle.peer_rounding_rms = number(member(rounding, "rms"));
    oracle.peer_rounding_max = number(member(rounding, "max_abs"));
  }
  if (const Json* reference = about.find("float64_reference"))
    if (const Json* max = reference->find("max_abs")) oracle.reference_max = number(*max);
  if (std::filesystem::exists(path + "/experts.json")) {
    const Json experts = read_json(path + "/experts.json");
    for (const auto& [layer, positions] : *member(experts, "experts").as_object())
      for (const Json& ids : *positions.as_array())
        oracle.experts[std::stoi(layer)].push_back(numbers<ExpertIndex>(ids));
  }
  return oracle;
}

std::vector<std::string> list_oracles(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (std::filesystem::exists(entry.path() / "model.gguf"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace millrace::test
