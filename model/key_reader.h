// KeyReader: reads "<architecture>.<key>" metadata with bounds; every failure names file and key.
// Lives while a model is opened; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/format/checkpoint.h"
#include "runtime/base/result.h"

namespace millrace {

class KeyReader {
 public:
  KeyReader(const Checkpoint& checkpoint, const char* architecture)
      : checkpoint_(checkpoint), prefix_(std::string(architecture) + ".") {}

  // Keys of the architecture that nothing asked for so far and that are not known to change
  // nothing; misspelt ones among them. In the file's order, without the architecture.
  std::vector<std::string> unknown() const;

  Error bad(std::string_view key, std::string_view cause, ErrorCode code = ErrorCode::format) const;

  // Missing: `fallback`, or an error when the fallback is 0 and `low` is not.
  Result<std::uint32_t> number(std::string_view key, std::uint32_t low, std::uint32_t high,
                               std::uint32_t fallback) const;
  // False if it is missing; `out` is then unchanged.
  Result<bool> has_real(std::string_view key, float& out) const;
  Result<float> real(std::string_view key, float fallback, bool required) const;
  // One value for all layers or an array with at least `layers` entries. Missing: `fallback`, or an
  // error if that is empty.
  Result<std::vector<std::uint32_t>> per_layer(std::string_view key, std::uint32_t layers,
                                               std::uint32_t low, std::uint32_t high,
                                               const std::vector<std::uint32_t>& fallback) const;
  // Likewise numbers, all finite; empty if missing.
  Result<std::vector<float>> reals_per_layer(std::string_view key, std::uint32_t layers) const;
  Result<std::string> text(std::string_view key) const;  // empty if missing
  Result<bool> flag(std::string_view key, bool missing = false) const;
  Result<std::vector<float>> reals(std::string_view key) const;  // empty if missing; all finite

 private:
  std::string whole(std::string_view key) const;  // and notes that it was asked for

  const Checkpoint& checkpoint_;
  std::string prefix_;
  mutable std::unordered_set<std::string> asked_;
};

}  // namespace millrace
