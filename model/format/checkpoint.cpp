#include "model/format/checkpoint.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "runtime/base/log.h"

namespace millrace {

namespace {

struct KindName {
  const char* operator()(bool) const { return "a bool"; }
  const char* operator()(std::int64_t) const { return "an integer"; }
  const char* operator()(std::uint64_t) const { return "an integer"; }
  const char* operator()(double) const { return "a float"; }
  const char* operator()(const std::string&) const { return "a string"; }
  const char* operator()(const std::vector<bool>&) const { return "an array of bools"; }
  const char* operator()(const std::vector<std::int64_t>&) const { return "an array of integers"; }
  const char* operator()(const std::vector<std::uint64_t>&) const { return "an array of integers"; }
  const char* operator()(const std::vector<double>&) const { return "an array of floats"; }
  const char* operator()(const std::vector<std::string>&) const { return "an array of strings"; }
};

Error key_error(const Checkpoint& checkpoint, std::string_view key, const std::string& detail) {
  return Error{ErrorCode::format,
               fmt::format("{}: key '{}': {}", checkpoint.display_path(), printable(key), detail)};
}

Error wrong_kind(const Checkpoint& checkpoint, std::string_view key, const MetaValue& value,
                 const char* expected) {
  return key_error(checkpoint, key,
                   fmt::format("is {}, expected {}", std::visit(KindName{}, value), expected));
}

template <class Held>
inline constexpr bool is_integer =
    std::is_same_v<Held, std::int64_t> || std::is_same_v<Held, std::uint64_t>;

// The number as a Wanted, if it fits.
template <class Wanted, class Held>
std::optional<Wanted> fit_integer(Held number) {
  if (!std::in_range<Wanted>(number)) return std::nullopt;
  return static_cast<Wanted>(number);
}

// Only finite numbers can be too large: infinities and NaN have a float of their own.
template <class Held>
std::optional<float> fit_float(Held number) {
  const auto wide = static_cast<double>(number);
  if (std::isfinite(wide) &&
      std::abs(wide) > static_cast<double>(std::numeric_limits<float>::max()))
    return std::nullopt;
  return static_cast<float>(wide);
}

// Copies the first `count` elements through `fit`; says which one does not.
template <class Wanted, class Held, class Fit>
Status copy_fitting(const Checkpoint& checkpoint, std::string_view key,
                    const std::vector<Held>& from, std::size_t count, const char* wanted, Fit fit,
                    std::vector<Wanted>& out) {
  out.clear();
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<Wanted> fitted = fit(from[i]);
    if (!fitted)
      return key_error(checkpoint, key,
                       fmt::format("entry {} is {}, which is no {}", i, from[i], wanted));
    out.push_back(*fitted);
  }
  return {};
}

}  // namespace

Checkpoint::Checkpoint(Parts parts)
    : files_(std::move(parts.files)),
      tensors_(std::move(parts.tensors)),
      keys_(std::move(parts.keys)),
      meta_(std::move(parts.meta)),
      metadata_bytes_(parts.metadata_bytes),
      companions_(std::move(parts.companions)),
      origin_(std::move(parts.origin)) {
  MILLRACE_CHECK(!files_.empty());
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    MILLRACE_CHECK(tensors_[i].file < files_.size());
    MILLRACE_CHECK(by_name_.emplace(tensors_[i].name, i).second);
  }
}

const TensorInfo* Checkpoint::find_tensor(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const MetaValue* Checkpoint::find_meta(std::string_view key) const noexcept {
  const auto found = meta_.find(std::string(key));
  return found == meta_.end() ? nullptr : &found->second;
}

Result<bool> Checkpoint::has_string(std::string_view key, std::string& out) const {
  const MetaValue* value = find_meta(key);
  if (value == nullptr) return false;
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) return wrong_kind(*this, key, *value, "a string");
  out = *text;
  return true;
}

Result<bool> Checkpoint::has_u32(std::string_view key, std::uint32_t& out) const {
  const MetaValue* value = find_meta(key);
  if (value == nullptr) return false;
  return std::visit(
      [&](const auto& held) -> Result<bool> {
        if constexpr (is_integer<std::decay_t<decltype(held)>>) {
          const auto fitted = fit_integer<std::uint32_t>(held);
          if (!fitted)
            return key_error(*this, key, fmt::format("{} is not in 0 .. 4294967295", held));
          out = *fitted;
          return true;
        } else {
          return wrong_kind(*this, key, *value, "an integer");
        }
      },
      *value);
}

Result<bool> Checkpoint::has_f32(std::string_view key, float& out) const {
  const MetaValue* value = find_meta(key);
  if (value == nullptr) return false;
  return std::visit(
      [&](const auto& held) -> Result<bool> {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (is_integer<Held> || std::is_same_v<Held, double>) {
          const auto fitted = fit_float(held);
          if (!fitted || std::isnan(*fitted))
            return key_error(*this, key, fmt::format("{} is not a usable float", held));
          out = *fitted;
          return true;
        } else {
          return wrong_kind(*this, key, *value, "a float");
        }
      },
      *value);
}

Result<bool> Checkpoint::has_bool(std::string_view key, bool& out) const {
  const MetaValue* value = find_meta(key);
  if (value == nullptr) return false;
  const auto* flag = std::get_if<bool>(value);
  if (flag == nullptr) return wrong_kind(*this, key, *value, "a bool");
  out = *flag;
  return true;
}

Result<bool> Checkpoint::has_u32_per_layer(std::string_view key, std::uint32_t layers,
                                           std::vector<std::uint32_t>& out) const {
  const MetaValue* value = find_meta(key);
  if (value == nullptr) return false;
  const auto fill = [&](const auto& list) -> Result<bool> {
    if (list.size() < layers)
      return key_error(*this, key,
                       fmt::format("{} entries for a model of {} layers", list.size(), layers));
    MILLRACE_TRY(copy_fitting(
        *this, key, list, layers, "u32", [](auto n) { return fit_integer<std::uint32_t>(n); },
        out));
    return true;
  };
  if (const auto* list = std::get_if<std::vector<std::uint64_t>>(value)) return fill(*list);
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(value)) return fill(*list);
  std::uint32_t same = 0;
  MILLRACE_TRY(has_u32(key, same));
  out.assign(layers, same);
  return true;
}

const std::vector<std::string>* Checkpoint::string_array(std::string_view key) const noexcept {
  const MetaValue* value = find_meta(key);
  return value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
}

Result<bool> Checkpoint::has_i32_array(std::string_view key, std::vector<std::int32_t>& out) const {
  const MetaValue* value = find_meta(key);
  if (value == nullptr) return false;
  const auto fill = [&](const auto& list) -> Result<bool> {
    MILLRACE_TRY(copy_fitting(
        *this, key, list, list.size(), "i32", [](auto n) { return fit_integer<std::int32_t>(n); },
        out));
    return true;
  };
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(value)) return fill(*list);
  if (const auto* list = std::get_if<std::vector<std::uint64_t>>(value)) return fill(*list);
  return wrong_kind(*this, key, *value, "an array of integers");
}

Result<bool> Checkpoint::has_f32_array(std::string_view key, std::vector<float>& out) const {
  const MetaValue* value = find_meta(key);
  if (value == nullptr) return false;
  const auto fill = [&](const auto& list) -> Result<bool> {
    MILLRACE_TRY(copy_fitting(
        *this, key, list, list.size(), "f32", [](auto n) { return fit_float(n); }, out));
    return true;
  };
  if (const auto* list = std::get_if<std::vector<double>>(value)) return fill(*list);
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(value)) return fill(*list);
  if (const auto* list = std::get_if<std::vector<std::uint64_t>>(value)) return fill(*list);
  return wrong_kind(*this, key, *value, "an array of floats");
}

std::string Checkpoint::architecture() const {
  const MetaValue* value = find_meta("general.architecture");
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string() : *text;
}

std::string Checkpoint::display_path() const {
  return printable(origin_.empty() ? files_.front() : origin_, 4096);
}

}  // namespace millrace
