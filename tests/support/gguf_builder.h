// Writes GGUF files for tests: right ones, and ones that are wrong in exactly one chosen place.
// What is not overridden is computed. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::testing {

// The bytes of `value` as the file holds them.
template <class T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
// A u64 length and the text.
std::string raw_string(std::string_view text);

// Value types, as numbers in the file.
enum MetaType : std::uint32_t {
  meta_u8 = 0,
  meta_i8 = 1,
  meta_u16 = 2,
  meta_i16 = 3,
  meta_u32 = 4,
  meta_i32 = 5,
  meta_f32 = 6,
  meta_bool = 7,
  meta_string = 8,
  meta_array = 9,
  meta_u64 = 10,
  meta_i64 = 11,
  meta_f64 = 12,
};

struct BuiltTensor {
  std::string name;
  std::vector<std::uint64_t> ne;
  std::uint32_t type = 0;
  std::string data;  // what lies at the tensor's place
  // Overrides, for files that lie.
  std::optional<std::uint64_t> name_length;
  std::optional<std::uint32_t> dims;
  std::optional<std::uint64_t> offset;  // in the data part; default: after the tensor before
};

class GgufBuilder {
 public:
  // Header fields; the counts are those of what was added unless set.
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count;
  std::optional<std::uint64_t> key_count;
  // Padding between tensors; does not write the key.
  std::uint64_t alignment = 32;
  bool pad_tail = true;  // the last tensor is padded too

  GgufBuilder& meta(std::string_view key, std::uint32_t type, std::string_view bytes);
  GgufBuilder& string(std::string_view key, std::string_view text) {
    return meta(key, meta_string, raw_string(text));
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t value) {
    return meta(key, meta_u32, raw(value));
  }
  GgufBuilder& f32(std::string_view key, float value) { return meta(key, meta_f32, raw(value)); }
  GgufBuilder& boolean(std::string_view key, bool value) {
    return meta(key, meta_bool, raw(static_cast<std::uint8_t>(value)));
  }
  // `count` is what the file says; `bytes` are the elements.
  GgufBuilder& array(std::string_view key, std::uint32_t element_type, std::uint64_t count,
                     std::string_view bytes);
  template <class T>
  GgufBuilder& numbers(std::string_view key, std::uint32_t element_type,
                       const std::vector<T>& values) {
    std::string bytes;
    for (const T value : values) bytes += raw(value);
    return array(key, element_type, values.size(), bytes);
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values);
  GgufBuilder& split(std::uint16_t index, std::uint16_t count, std::int32_t tensors);

  GgufBuilder& tensor(BuiltTensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // A f32 tensor whose elements are 0, 1, 2 …
  GgufBuilder& f32_tensor(std::string_view name, const std::vector<std::uint64_t>& ne);

  // Everything before the data part, without the padding that follows.
  std::string header() const;
  std::string build() const;

 private:
  std::string pairs_;
  std::uint64_t pair_count_ = 0;
  std::vector<BuiltTensor> tensors_;
};

}  // namespace millrace::testing
