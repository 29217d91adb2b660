#include "model/format/gguf_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace millrace {

namespace {

// Elements reserved ahead of reading: a count in the file is only a claim.
constexpr std::uint64_t reserve_elements_max = std::uint64_t{1} << 18;

template <class Raw, class Stored>
Result<MetaValue> read_scalar(HeaderReader& reader) {
  MILLRACE_ASSIGN(const Raw raw, reader.number<Raw>());
  return MetaValue(static_cast<Stored>(raw));
}

Error bad_bool(const HeaderReader& reader, std::uint8_t value) {
  return reader.malformed(fmt::format("a bool with the value {}, not 0 or 1", value));
}

Result<MetaValue> read_bool(HeaderReader& reader) {
  MILLRACE_ASSIGN(const std::uint8_t raw, reader.number<std::uint8_t>());
  if (raw > 1) return bad_bool(reader, raw);
  return MetaValue(raw == 1);
}

Result<MetaValue> read_string(HeaderReader& reader) {
  MILLRACE_ASSIGN(std::string text, reader.string(HeaderReader::memory_bytes_max));
  return MetaValue(std::move(text));
}

// Refuses a count whose smallest encoding is longer than the rest of the file, then claims memory.
Status admit_elements(HeaderReader& reader, std::uint64_t count, std::uint64_t file_bytes_each,
                      std::uint64_t memory_bytes_each) {
  if (count > reader.bytes_left() / file_bytes_each)
    return reader.malformed(
        fmt::format("an array of {} elements of at least {} bytes, but the file has only {} bytes "
                    "more",
                    count, file_bytes_each, reader.bytes_left()));
  return reader.claim(count, memory_bytes_each);
}

template <class Raw, class Stored>
Result<MetaValue> read_numbers(HeaderReader& reader, std::uint64_t count) {
  MILLRACE_TRY(admit_elements(reader, count, sizeof(Raw), sizeof(Stored)));
  std::vector<Stored> values;
  values.reserve(std::min(count, reserve_elements_max));
  std::array<Raw, 1024> chunk;
  while (count > 0) {
    const std::uint64_t step = std::min<std::uint64_t>(count, chunk.size());
    MILLRACE_TRY(reader.bytes(chunk.data(), step * sizeof(Raw)));
    for (std::size_t i = 0; i < step; ++i) values.push_back(static_cast<Stored>(chunk[i]));
    count -= step;
  }
  return MetaValue(std::move(values));
}

Result<MetaValue> read_bools(HeaderReader& reader, std::uint64_t count) {
  MILLRACE_TRY(admit_elements(reader, count, 1, 1));
  std::vector<bool> values;
  values.reserve(std::min(count, reserve_elements_max));
  std::array<std::uint8_t, 1024> chunk;
  while (count > 0) {
    const std::uint64_t step = std::min<std::uint64_t>(count, chunk.size());
    MILLRACE_TRY(reader.bytes(chunk.data(), step));
    for (std::size_t i = 0; i < step; ++i) {
      if (chunk[i] > 1) return bad_bool(reader, chunk[i]);
      values.push_back(chunk[i] == 1);
    }
    count -= step;
  }
  return MetaValue(std::move(values));
}

Result<MetaValue> read_strings(HeaderReader& reader, std::uint64_t count) {
  MILLRACE_TRY(admit_elements(reader, count, sizeof(std::uint64_t), sizeof(std::string)));
  std::vector<std::string> values;
  values.reserve(std::min(count, reserve_elements_max));
  for (std::uint64_t i = 0; i < count; ++i) {
    MILLRACE_ASSIGN(std::string text, reader.string(HeaderReader::memory_bytes_max));
    values.push_back(std::move(text));
  }
  return MetaValue(std::move(values));
}

Result<MetaValue> read_array(HeaderReader& reader) {
  MILLRACE_ASSIGN(const std::uint32_t type, reader.number<std::uint32_t>());
  MILLRACE_ASSIGN(const std::uint64_t count, reader.number<std::uint64_t>());
  switch (static_cast<GgufType>(type)) {
    case GgufType::u8:
      return read_numbers<std::uint8_t, std::uint64_t>(reader, count);
    case GgufType::i8:
      return read_numbers<std::int8_t, std::int64_t>(reader, count);
    case GgufType::u16:
      return read_numbers<std::uint16_t, std::uint64_t>(reader, count);
    case GgufType::i16:
      return read_numbers<std::int16_t, std::int64_t>(reader, count);
    case GgufType::u32:
      return read_numbers<std::uint32_t, std::uint64_t>(reader, count);
    case GgufType::i32:
      return read_numbers<std::int32_t, std::int64_t>(reader, count);
    case GgufType::f32:
      return read_numbers<float, double>(reader, count);
    case GgufType::boolean:
      return read_bools(reader, count);
    case GgufType::string:
      return read_strings(reader, count);
    case GgufType::array:
      return reader.malformed("an array of arrays, which no reader of GGUF accepts");
    case GgufType::u64:
      return read_numbers<std::uint64_t, std::uint64_t>(reader, count);
    case GgufType::i64:
      return read_numbers<std::int64_t, std::int64_t>(reader, count);
    case GgufType::f64:
      return read_numbers<double, double>(reader, count);
  }
  return reader.malformed(fmt::format("an array of unknown element type {}", type));
}

}  // namespace

Result<MetaValue> read_gguf_value(HeaderReader& reader, std::uint32_t type) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::u8:
      return read_scalar<std::uint8_t, std::uint64_t>(reader);
    case GgufType::i8:
      return read_scalar<std::int8_t, std::int64_t>(reader);
    case GgufType::u16:
      return read_scalar<std::uint16_t, std::uint64_t>(reader);
    case GgufType::i16:
      return read_scalar<std::int16_t, std::int64_t>(reader);
    case GgufType::u32:
      return read_scalar<std::uint32_t, std::uint64_t>(reader);
    case GgufType::i32:
      return read_scalar<std::int32_t, std::int64_t>(reader);
    case GgufType::f32:
      return read_scalar<float, double>(reader);
    case GgufType::boolean:
      return read_bool(reader);
    case GgufType::string:
      return read_string(reader);
    case GgufType::array:
      return read_array(reader);
    case GgufType::u64:
      return read_scalar<std::uint64_t, std::uint64_t>(reader);
    case GgufType::i64:
      return read_scalar<std::int64_t, std::int64_t>(reader);
    case GgufType::f64:
      return read_scalar<double, double>(reader);
  }
  return reader.malformed(fmt::format("unknown value type {}", type));
}

}  // namespace millrace
