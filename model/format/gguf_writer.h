// Writes the part of a GGUF file in front of the weights: pairs, then the tensor table. Not
// thread-safe. The caller writes each tensor's bytes at data_start() + its offset.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"

namespace millrace {

class GgufWriter {
 public:
  static constexpr std::uint64_t alignment = 32;  // of tensors in the data part

  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, std::uint32_t value);
  void real(std::string_view key, float value);
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, const std::vector<std::string>& values);
  void numbers(std::string_view key, const std::vector<std::int32_t>& values);
  void unsigned_numbers(std::string_view key, const std::vector<std::uint32_t>& values);
  void reals(std::string_view key, const std::vector<float>& values);

  // Adds a tensor behind the others; returns its offset in the data part. ne[0] is the row length,
  // a multiple of the type's block; at most four dimensions.
  std::uint64_t tensor(std::string_view name, std::span<const std::uint64_t> ne, DType type);

  // Header with padding to the data part, and the sizes that follow from it.
  std::string header() const;
  std::uint64_t data_bytes() const noexcept { return data_bytes_; }

 private:
  void pair(std::string_view key, std::uint32_t type);
  template <class T>
  void array(std::string_view key, std::uint32_t type, const std::vector<T>& values);

  std::string pairs_, table_;
  std::uint64_t pair_count_ = 0, tensor_count_ = 0;
  std::uint64_t data_bytes_ = 0;
};

}  // namespace millrace
