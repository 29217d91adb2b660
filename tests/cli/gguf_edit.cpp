#include "tests/cli/gguf_edit.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_bytes.h"

namespace millrace::cli {

using testing::raw;
using testing::raw_string;

namespace {

constexpr std::uint64_t type_bytes = 4;

}  // namespace

GgufEdit::GgufEdit(std::string bytes) : bytes_(std::move(bytes)) {
  const auto file = testing::read_gguf_bytes(bytes_);
  REQUIRE(file.has_value());
  data_at_ = bytes_.size();
  for (const TensorInfo& tensor : file->tensors) {
    data_at_ = std::min(data_at_, tensor.offset_bytes);
    header_bytes_ =
        std::max(header_bytes_, behind_extents(tensor.name) + type_bytes + sizeof(std::uint64_t));
  }
}

std::uint64_t GgufEdit::behind(std::string_view name) const {
  const std::string written = raw_string(name);
  const std::size_t found = bytes_.find(written);
  INFO(name);
  REQUIRE(found != std::string::npos);
  return found + written.size();
}

std::uint64_t GgufEdit::behind_extents(std::string_view tensor) const {
  const std::uint64_t place = behind(tensor);
  std::uint32_t dimensions = 0;
  std::memcpy(&dimensions, bytes_.data() + place, sizeof dimensions);
  return place + sizeof dimensions + dimensions * sizeof(std::uint64_t);
}

GgufEdit& GgufEdit::set_bytes(std::uint64_t at, std::string_view data) {
  REQUIRE(at + data.size() <= bytes_.size());
  bytes_.replace(at, data.size(), data);
  return *this;
}

GgufEdit& GgufEdit::rename(std::string_view from, std::string_view to) {
  REQUIRE(from.size() == to.size());
  return set_bytes(behind(from) - from.size(), to);
}

GgufEdit& GgufEdit::set_text(std::string_view key, std::string_view text) {
  const std::uint64_t place = behind(key) + type_bytes;
  REQUIRE(bytes_.compare(place, sizeof(std::uint64_t), raw<std::uint64_t>(text.size())) == 0);
  return set_bytes(place + sizeof(std::uint64_t), text);
}

GgufEdit& GgufEdit::set_u32(std::string_view key, std::uint32_t value) {
  const std::uint64_t place = behind(key);
  REQUIRE(bytes_.compare(place, type_bytes, raw<std::uint32_t>(testing::meta_u32)) == 0);
  return set_bytes(place + type_bytes, raw(value));
}

GgufEdit& GgufEdit::set_extent(std::string_view tensor, unsigned dimension, std::uint64_t value) {
  return set_bytes(behind(tensor) + sizeof(std::uint32_t) + dimension * sizeof(std::uint64_t),
                   raw(value));
}

GgufEdit& GgufEdit::set_type(std::string_view tensor, std::uint32_t type) {
  return set_bytes(behind_extents(tensor), raw(type));
}

GgufEdit& GgufEdit::set_offset(std::string_view tensor, std::uint64_t offset) {
  return set_bytes(behind_extents(tensor) + type_bytes, raw(offset));
}

GgufEdit& GgufEdit::set_data(std::string_view tensor, std::uint64_t at, std::string_view data) {
  std::uint64_t offset = 0;
  std::memcpy(&offset, bytes_.data() + behind_extents(tensor) + type_bytes, sizeof offset);
  return set_bytes(data_at_ + offset + at, data);
}

}  // namespace millrace::cli
