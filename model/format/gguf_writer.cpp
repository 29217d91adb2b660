#include "model/format/gguf_writer.h"

#include <bit>

#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

// Value types as numbers in the file.
constexpr std::uint32_t type_u32 = 4;
constexpr std::uint32_t type_i32 = 5;
constexpr std::uint32_t type_f32 = 6;
constexpr std::uint32_t type_bool = 7;
constexpr std::uint32_t type_string = 8;
constexpr std::uint32_t type_array = 9;

constexpr std::uint32_t gguf_version = 3;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

}  // namespace

void GgufWriter::pair(std::string_view key, std::uint32_t type) {
  put_text(pairs_, key);
  put(pairs_, type);
  ++pair_count_;
}

void GgufWriter::text(std::string_view key, std::string_view value) {
  pair(key, type_string);
  put_text(pairs_, value);
}

void GgufWriter::number(std::string_view key, std::uint32_t value) {
  pair(key, type_u32);
  put(pairs_, value);
}

void GgufWriter::real(std::string_view key, float value) {
  pair(key, type_f32);
  put(pairs_, value);
}

void GgufWriter::flag(std::string_view key, bool value) {
  pair(key, type_bool);
  put<std::uint8_t>(pairs_, value ? 1 : 0);
}

void GgufWriter::texts(std::string_view key, const std::vector<std::string>& values) {
  pair(key, type_array);
  put(pairs_, type_string);
  put<std::uint64_t>(pairs_, values.size());
  for (const std::string& value : values) put_text(pairs_, value);
}

template <class T>
void GgufWriter::array(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
  pair(key, type_array);
  put(pairs_, type);
  put<std::uint64_t>(pairs_, values.size());
  for (const T value : values) put(pairs_, value);
}

void GgufWriter::numbers(std::string_view key, const std::vector<std::int32_t>& values) {
  array(key, type_i32, values);
}

void GgufWriter::unsigned_numbers(std::string_view key, const std::vector<std::uint32_t>& values) {
  array(key, type_u32, values);
}

void GgufWriter::reals(std::string_view key, const std::vector<float>& values) {
  array(key, type_f32, values);
}

std::uint64_t GgufWriter::tensor(std::string_view name, std::span<const std::uint64_t> ne,
                                 DType type) {
  MILLRACE_CHECK(!ne.empty() && ne.size() <= 4 && ne[0] % dtype_info(type).block_elems == 0);
  const std::uint64_t offset = data_bytes_;
  std::uint64_t bytes = dtype_row_bytes(type, ne[0]);
  put_text(table_, name);
  put(table_, static_cast<std::uint32_t>(ne.size()));
  for (std::size_t i = 0; i < ne.size(); ++i) {
    put(table_, ne[i]);
    if (i > 0) bytes *= ne[i];
  }
  put(table_, static_cast<std::uint32_t>(type));
  put(table_, offset);
  ++tensor_count_;
  data_bytes_ += round_up(bytes, alignment);
  return offset;
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put(out, gguf_version);
  put(out, tensor_count_);
  put(out, pair_count_);
  out += pairs_;
  out += table_;
  out.resize(round_up(out.size(), alignment), '\0');
  return out;
}

}  // namespace millrace
