#include "model/key_reader.h"

#include <fmt/format.h>

#include <cmath>

#include "model/known_keys.h"

namespace millrace {

std::string KeyReader::whole(std::string_view key) const {
  asked_.emplace(key);
  return prefix_ + std::string(key);
}

std::vector<std::string> KeyReader::unknown() const {
  std::vector<std::string> keys;
  for (const std::string& key : checkpoint_.keys()) {
    if (!key.starts_with(prefix_)) continue;
    const std::string own = key.substr(prefix_.size());
    if (!asked_.contains(own) && !is_known_unused_key(own)) keys.push_back(own);
  }
  return keys;
}

Error KeyReader::bad(std::string_view key, std::string_view cause, ErrorCode code) const {
  return Error{code, fmt::format("{}: metadata key {}{}: {}", checkpoint_.display_path(), prefix_,
                                 key, cause)};
}

Result<std::uint32_t> KeyReader::number(std::string_view key, std::uint32_t low, std::uint32_t high,
                                        std::uint32_t fallback) const {
  std::uint32_t value = fallback;
  MILLRACE_ASSIGN(const bool present, checkpoint_.has_u32(whole(key), value));
  if (!present && fallback == 0 && low > 0) return bad(key, "missing");
  if (value < low || value > high)
    return bad(key, fmt::format("{} is outside {} to {}", value, low, high));
  return value;
}

Result<bool> KeyReader::has_real(std::string_view key, float& out) const {
  float value = out;
  MILLRACE_ASSIGN(const bool present, checkpoint_.has_f32(whole(key), value));
  if (!std::isfinite(value)) return bad(key, "not a finite number");
  out = value;
  return present;
}

Result<float> KeyReader::real(std::string_view key, float fallback, bool required) const {
  float value = fallback;
  MILLRACE_ASSIGN(const bool present, has_real(key, value));
  if (!present && required) return bad(key, "missing");
  return value;
}

Result<std::vector<std::uint32_t>> KeyReader::per_layer(
    std::string_view key, std::uint32_t layers, std::uint32_t low, std::uint32_t high,
    const std::vector<std::uint32_t>& fallback) const {
  std::vector<std::uint32_t> values;
  MILLRACE_ASSIGN(const bool present, checkpoint_.has_u32_per_layer(whole(key), layers, values));
  if (!present) {
    if (fallback.empty()) return bad(key, "missing");
    values = fallback;
  }
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    if (values[layer] < low || values[layer] > high)
      return bad(key,
                 fmt::format("{} (layer {}) is outside {} to {}", values[layer], layer, low, high));
  return values;
}

Result<std::vector<float>> KeyReader::reals_per_layer(std::string_view key,
                                                      std::uint32_t layers) const {
  const std::string name = whole(key);
  const MetaValue* value = checkpoint_.find_meta(name);
  std::vector<float> values;
  if (value == nullptr) return values;
  if (std::holds_alternative<double>(*value)) {
    float same = 0;
    MILLRACE_TRY(checkpoint_.has_f32(name, same));
    values.assign(layers, same);
  } else {
    MILLRACE_TRY(checkpoint_.has_f32_array(name, values));
  }
  if (values.size() < layers)
    return bad(key, fmt::format("{} entries for a model of {} layers", values.size(), layers));
  values.resize(layers);
  for (const float number : values)
    if (!std::isfinite(number)) return bad(key, "not a finite number");
  return values;
}

Result<std::string> KeyReader::text(std::string_view key) const {
  std::string value;
  MILLRACE_ASSIGN(const bool present, checkpoint_.has_string(whole(key), value));
  static_cast<void>(present);
  return value;
}

Result<bool> KeyReader::flag(std::string_view key, bool missing) const {
  bool value = missing;
  MILLRACE_ASSIGN(const bool present, checkpoint_.has_bool(whole(key), value));
  static_cast<void>(present);
  return value;
}

Result<std::vector<float>> KeyReader::reals(std::string_view key) const {
  std::vector<float> values;
  MILLRACE_ASSIGN(const bool present, checkpoint_.has_f32_array(whole(key), values));
  static_cast<void>(present);
  for (const float value : values)
    if (!std::isfinite(value)) return bad(key, "holds a number that is not finite");
  return values;
}

}  // namespace millrace
