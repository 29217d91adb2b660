// Typed access to config.json and its like: errors name the file and the key. Borrows the tree;
// lives only while a Checkpoint is built; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace millrace {

class ConfigReader {
 public:
  // `within`: what messages put in front of keys ("rope_scaling."), empty at the top.
  ConfigReader(std::string path, const Json& json, std::string within = {})
      : path_(std::move(path)), json_(&json), within_(std::move(within)) {}

  const std::string& path() const noexcept { return path_; }
  // Null if absent or null in the file.
  const Json* find(std::string_view key) const;
  // An object below this one; absent: empty.
  std::optional<ConfigReader> below(std::string_view key) const;

  Error bad(std::string_view key, std::string_view cause, ErrorCode code = ErrorCode::format) const;
  // Whole numbers 0 .. 2^32 - 1. need: `format` error if absent.
  Result<std::uint32_t> need_number(std::string_view key) const;
  Result<std::optional<std::uint32_t>> number(std::string_view key) const;
  Result<std::uint32_t> number(std::string_view key, std::uint32_t absent) const;
  Result<double> need_real(std::string_view key) const;
  Result<std::optional<double>> real(std::string_view key) const;
  Result<bool> flag(std::string_view key, bool absent) const;
  Result<std::string> text(std::string_view key) const;  // empty if absent
  Result<std::vector<double>> reals(std::string_view key) const;

 private:
  std::string path_;
  const Json* json_;
  std::string within_;
};

}  // namespace millrace
