// A model file with one thing changed, byte for byte: what is edited is wrong, the rest stays
// right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::cli {

class GgufEdit {
 public:
  explicit GgufEdit(std::string bytes);  // a sound file
  const std::string& bytes() const noexcept { return bytes_; }
  std::uint64_t header_bytes() const noexcept { return header_bytes_; }  // to the end of the table
  std::uint64_t data_at() const noexcept { return data_at_; }  // offset of the first tensor's data

  // A key or a tensor gets another name of the same length.
  GgufEdit& rename(std::string_view from, std::string_view to);
  // A text value gets another of the same length; a u32 value another number.
  GgufEdit& set_text(std::string_view key, std::string_view text);
  GgufEdit& set_u32(std::string_view key, std::uint32_t value);
  // In the table of tensors.
  GgufEdit& set_extent(std::string_view tensor, unsigned dimension, std::uint64_t value);
  GgufEdit& set_type(std::string_view tensor, std::uint32_t type);
  GgufEdit& set_offset(std::string_view tensor, std::uint64_t offset);
  // Overwrites bytes of a tensor's data, or anywhere.
  GgufEdit& set_data(std::string_view tensor, std::uint64_t at, std::string_view data);
  GgufEdit& set_bytes(std::uint64_t at, std::string_view data);

 private:
  std::uint64_t behind(std::string_view name) const;  // offset behind this name
  std::uint64_t behind_extents(std::string_view tensor) const;

  std::string bytes_;
  std::uint64_t header_bytes_ = 0;
  std::uint64_t data_at_ = 0;
};

}  // namespace millrace::cli
