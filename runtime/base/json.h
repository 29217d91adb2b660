// JSON as a tree of values; nlohmann/json does the work behind it (json.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/result.h"

namespace millrace {

// A value; objects keep the order in which keys were set. Plain data, copied freely. Numbers are
// integers or doubles.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : state_(value) {}
  Json(int value) : state_(static_cast<std::int64_t>(value)) {}
  Json(unsigned value) : state_(static_cast<std::int64_t>(value)) {}
  Json(std::int64_t value) : state_(value) {}
  Json(std::uint64_t value) : state_(value) {}
  Json(double value) : state_(value) {}
  Json(const char* value) : state_(std::string(value)) {}
  Json(std::string value) : state_(std::move(value)) {}
  Json(std::string_view value) : state_(std::string(value)) {}
  static Json array() {
    Json made;
    made.state_ = Array{};
    return made;
  }
  static Json object() {
    Json made;
    made.state_ = Object{};
    return made;
  }

  bool is_null() const { return std::holds_alternative<std::monostate>(state_); }
  // Null pointers when the value is of another kind.
  const Array* as_array() const { return std::get_if<Array>(&state_); }
  const Object* as_object() const { return std::get_if<Object>(&state_); }
  const std::string* as_string() const { return std::get_if<std::string>(&state_); }
  const bool* as_bool() const { return std::get_if<bool>(&state_); }
  // False when the value is no integer (of the range), or no number.
  bool get_integer(std::int64_t& out) const;
  bool get_number(double& out) const;
  const Json* find(std::string_view key) const;  // null pointer if absent or not an object

  Json& set(std::string key,
            Json value);   // appends or replaces; the value must be an object (or null, made one)
  Json& push(Json value);  // the value must be an array (or null, made one)

  // Strings that are not valid UTF-8 get U+FFFD. Infinite and NaN numbers become null. indent < 0:
  // one line.
  std::string dump(int indent = -1) const;

  // Limits: `depth_max` nested containers, `bytes_max` of text. Duplicate keys are refused.
  struct ParseLimits {
    std::size_t bytes_max = std::size_t{64} << 20;
    unsigned depth_max = 64;
  };
  static Result<Json> parse(std::string_view text, const ParseLimits& limits);
  static Result<Json> parse(std::string_view text) { return parse(text, ParseLimits{}); }

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      state_;
  friend struct JsonBridge;
};

}  // namespace millrace
