#include "runtime/base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/utf8.h"

namespace millrace {

using Ordered = nlohmann::ordered_json;

// Builds a Json tree from nlohmann's SAX events, with the limits checked as they come.
struct JsonBridge {
  static Ordered to_nlohmann(const Json& value);

  struct Reader final : nlohmann::json_sax<Ordered> {
    unsigned depth_max = 0;
    std::string problem;
    Json root;
    std::vector<Json*> open;
    std::vector<std::set<std::string>> keys;
    std::string pending_key;

    bool place(Json value) {
      if (open.empty()) {
        root = std::move(value);
      } else if (open.back()->as_array() != nullptr) {
        open.back()->push(std::move(value));
      } else {
        std::get<Json::Object>(open.back()->state_).emplace_back(pending_key, std::move(value));
      }
      return true;
    }
    bool enter(Json container) {
      if (open.size() >= depth_max) {
        problem = fmt::format("nested deeper than {}", depth_max);
        return false;
      }
      place(std::move(container));
      Json* placed = &root;
      if (!open.empty()) {
        auto& state = open.back()->state_;
        if (auto* list = std::get_if<Json::Array>(&state)) placed = &list->back();
        else placed = &std::get<Json::Object>(state).back().second;
      }
      open.push_back(placed);
      keys.emplace_back();
      return true;
    }
    bool leave() {
      open.pop_back();
      keys.pop_back();
      return true;
    }

    bool null() override { return place(Json()); }
    bool boolean(bool value) override { return place(Json(value)); }
    bool number_integer(std::int64_t value) override { return place(Json(value)); }
    bool number_unsigned(std::uint64_t value) override { return place(Json(value)); }
    bool number_float(double value, const std::string&) override { return place(Json(value)); }
    bool string(std::string& value) override { return place(Json(value)); }
    bool binary(Ordered::binary_t&) override { return false; }
    bool start_object(std::size_t) override { return enter(Json::object()); }
    bool key(std::string& value) override {
      if (!keys.back().insert(value).second) {
        problem = fmt::format("key \"{}\" appears twice", value);
        return false;
      }
      pending_key = value;
      return true;
    }
    bool end_object() override { return leave(); }
    bool start_array(std::size_t) override { return enter(Json::array()); }
    bool end_array() override { return leave(); }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::detail::exception&) override {
      problem = fmt::format("syntax error at byte {}", position);
      return false;
    }
  };
};

Ordered JsonBridge::to_nlohmann(const Json& value) {
  struct Visitor {
    Ordered operator()(std::monostate) const { return nullptr; }
    Ordered operator()(bool v) const { return v; }
    Ordered operator()(std::int64_t v) const { return v; }
    Ordered operator()(std::uint64_t v) const { return v; }
    Ordered operator()(double v) const { return std::isfinite(v) ? Ordered(v) : Ordered(nullptr); }
    Ordered operator()(const std::string& v) const { return utf8_replace_invalid(v); }
    Ordered operator()(const Json::Array& v) const {
      Ordered made = Ordered::array();
      for (const Json& item : v) made.push_back(JsonBridge::to_nlohmann(item));
      return made;
    }
    Ordered operator()(const Json::Object& v) const {
      Ordered made = Ordered::object();
      for (const auto& [key, item] : v)
        made[utf8_replace_invalid(key)] = JsonBridge::to_nlohmann(item);
      return made;
    }
  };
  return std::visit(Visitor{}, value.state_);
}

const Json* Json::find(std::string_view key) const {
  const Object* object = as_object();
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object)
    if (name == key) return &value;
  return nullptr;
}

bool Json::get_integer(std::int64_t& out) const {
  if (const auto* number = std::get_if<std::int64_t>(&state_)) {
    out = *number;
    return true;
  }
  const auto* big = std::get_if<std::uint64_t>(&state_);
  if (big == nullptr || *big > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return false;
  out = static_cast<std::int64_t>(*big);
  return true;
}

bool Json::get_number(double& out) const {
  if (const auto* real = std::get_if<double>(&state_)) {
    out = *real;
    return true;
  }
  std::int64_t integer = 0;
  if (!get_integer(integer)) return false;
  out = static_cast<double>(integer);
  return true;
}

Json& Json::set(std::string key, Json value) {
  if (is_null()) state_ = Object{};
  MILLRACE_CHECK(as_object() != nullptr);
  auto& object = std::get<Object>(state_);
  for (auto& [name, old] : object) {
    if (name != key) continue;
    old = std::move(value);
    return *this;
  }
  object.emplace_back(std::move(key), std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  if (is_null()) state_ = Array{};
  MILLRACE_CHECK(as_array() != nullptr);
  std::get<Array>(state_).push_back(std::move(value));
  return *this;
}

std::string Json::dump(int indent) const { return JsonBridge::to_nlohmann(*this).dump(indent); }

Result<Json> Json::parse(std::string_view text, const ParseLimits& limits) {
  if (text.size() > limits.bytes_max)
    return Error{ErrorCode::format, fmt::format("JSON text of {} bytes exceeds the limit of {}",
                                                text.size(), limits.bytes_max)};
  JsonBridge::Reader reader;
  reader.depth_max = limits.depth_max;
  if (!Ordered::sax_parse(text, &reader))
    return Error{ErrorCode::format,
                 "JSON: " + (reader.problem.empty() ? "refused" : reader.problem)};
  return std::move(reader.root);
}

}  // namespace millrace
