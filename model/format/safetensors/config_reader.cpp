#include "model/format/safetensors/config_reader.h"

#include <fmt/format.h>

#include <limits>

#include "runtime/base/log.h"

namespace millrace {

const Json* ConfigReader::find(std::string_view key) const {
  const Json* value = json_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<ConfigReader> ConfigReader::below(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr || value->as_object() == nullptr) return std::nullopt;
  return ConfigReader(path_, *value, fmt::format("{}{}.", within_, key));
}

Error ConfigReader::bad(std::string_view key, std::string_view cause, ErrorCode code) const {
  return {code, fmt::format("{}: key {}{}: {}", printable(path_, 4096), within_, key, cause)};
}

Result<std::optional<std::uint32_t>> ConfigReader::number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<std::uint32_t>();
  std::int64_t number = 0;
  if (!value->get_integer(number) || number < 0 ||
      number > std::numeric_limits<std::uint32_t>::max())
    return bad(key,
               fmt::format("{} is no whole number from 0 to 4294967295", printable(value->dump())));
  return std::optional(static_cast<std::uint32_t>(number));
}

Result<std::uint32_t> ConfigReader::number(std::string_view key, std::uint32_t absent) const {
  MILLRACE_ASSIGN(const auto found, number(key));
  return found.value_or(absent);
}

Result<std::uint32_t> ConfigReader::need_number(std::string_view key) const {
  MILLRACE_ASSIGN(const auto found, number(key));
  if (!found) return bad(key, "missing");
  return *found;
}

Result<std::optional<double>> ConfigReader::real(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<double>();
  double number = 0;
  if (!value->get_number(number))
    return bad(key, fmt::format("{} is no number", printable(value->dump())));
  return std::optional(number);
}

Result<double> ConfigReader::need_real(std::string_view key) const {
  MILLRACE_ASSIGN(const auto found, real(key));
  if (!found) return bad(key, "missing");
  return *found;
}

Result<bool> ConfigReader::flag(std::string_view key, bool absent) const {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (value->as_bool() == nullptr)
    return bad(key, fmt::format("{} is neither true nor false", printable(value->dump())));
  return *value->as_bool();
}

Result<std::string> ConfigReader::text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::string();
  if (value->as_string() == nullptr)
    return bad(key, fmt::format("{} is no text", printable(value->dump())));
  return *value->as_string();
}

Result<std::vector<double>> ConfigReader::reals(std::string_view key) const {
  std::vector<double> numbers;
  const Json* value = find(key);
  if (value == nullptr) return numbers;
  if (value->as_array() == nullptr) return bad(key, "is no array");
  for (const Json& item : *value->as_array()) {
    double number = 0;
    if (!item.get_number(number)) return bad(key, "holds something else than numbers");
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace millrace
