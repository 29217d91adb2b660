#include "tests/fuzz/gguf_plain.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <set>

#include "kernels/dtype.h"

namespace millrace::testing {

namespace {

__extension__ using Wide = unsigned __int128;

struct Cursor {
  std::string_view bytes;
  Wide at = 0;
  bool bad = false;

  std::string_view take(Wide count) {
    if (bad || at + count > bytes.size()) {
      bad = true;
      return {};
    }
    const auto begin = static_cast<std::size_t>(at);
    at += count;
    return bytes.substr(begin, static_cast<std::size_t>(count));
  }
  template <class T>
  T number() {
    T value{};
    const std::string_view taken = take(sizeof value);
    if (!bad) std::memcpy(&value, taken.data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }
};

// One scalar of `type` as text.
std::string scalar(Cursor& in, std::uint32_t type) {
  switch (type) {
    case 0:
      return fmt::format("{}", in.number<std::uint8_t>());
    case 1:
      return fmt::format("{}", in.number<std::int8_t>());
    case 2:
      return fmt::format("{}", in.number<std::uint16_t>());
    case 3:
      return fmt::format("{}", in.number<std::int16_t>());
    case 4:
      return fmt::format("{}", in.number<std::uint32_t>());
    case 5:
      return fmt::format("{}", in.number<std::int32_t>());
    case 6:
      return fmt::format("{}", static_cast<double>(in.number<float>()));
    case 7: {
      const auto value = in.number<std::uint8_t>();
      if (value > 1) in.bad = true;
      return value == 1 ? "true" : "false";
    }
    case 8:
      return in.text();
    case 10:
      return fmt::format("{}", in.number<std::uint64_t>());
    case 11:
      return fmt::format("{}", in.number<std::int64_t>());
    case 12:
      return fmt::format("{}", in.number<double>());
    default:
      in.bad = true;
      return {};
  }
}

std::string value(Cursor& in, std::uint32_t type) {
  if (type != 9) return scalar(in, type);
  const auto element = in.number<std::uint32_t>();
  const auto count = in.number<std::uint64_t>();
  if (element > 12 || element == 9) in.bad = true;
  std::string out = "[";
  for (std::uint64_t i = 0; i < count && !in.bad; ++i) out += scalar(in, element) + ";";
  return out + "]";
}

bool read_meta(Cursor& in, std::uint64_t count, PlainGguf& file, Wide& alignment,
               std::map<std::string, std::uint64_t>& array_lengths) {
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string key = in.text();
    const auto type = in.number<std::uint32_t>();
    if (in.bad || key.empty() || key.size() > 65535 || !seen.insert(key).second) return false;
    if (type == 9) {
      Cursor ahead = in;
      ahead.number<std::uint32_t>();
      array_lengths[key] = ahead.number<std::uint64_t>();
    }
    Cursor ahead = in;
    if (key == "general.alignment") {
      alignment = ahead.number<std::uint32_t>();
      if (type != 4 || alignment == 0 || (alignment & (alignment - 1)) != 0 ||
          alignment > (1u << 20))
        return false;
    }
    file.meta.emplace_back(key, value(in, type));
    if (in.bad) return false;
  }
  if (seen.contains("tokenizer.ggml.tokens")) {
    for (const char* key :
         {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"})
      if (seen.contains(key) && (!array_lengths.contains(key) ||
                                 array_lengths[key] != array_lengths["tokenizer.ggml.tokens"]))
        return false;
  }
  return true;
}

bool read_tensors(Cursor& in, std::uint64_t count, PlainGguf& file) {
  constexpr Wide most = (Wide{1} << 63) - 1;
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < count; ++i) {
    PlainTensor tensor;
    tensor.name = in.text();
    if (in.bad || tensor.name.empty() || tensor.name.size() > 63 ||
        tensor.name.find('\0') != std::string::npos || !seen.insert(tensor.name).second)
      return false;
    const auto dims = in.number<std::uint32_t>();
    if (in.bad || dims > 4) return false;
    Wide elements = 1;
    for (std::uint32_t d = 0; d < dims; ++d) {
      tensor.ne.push_back(in.number<std::uint64_t>());
      if (in.bad || tensor.ne.back() == 0) return false;
      elements *= tensor.ne.back();  // below 2^63 times below 2^64
      if (elements > most) return false;
    }
    tensor.type = in.number<std::uint32_t>();
    tensor.offset = in.number<std::uint64_t>();
    const DTypeInfo* info = find_dtype(tensor.type);
    if (in.bad || info == nullptr) return false;
    const std::uint64_t row = tensor.ne.empty() ? 1 : tensor.ne[0];
    if (row % info->block_elems != 0) return false;
    const Wide bytes = elements / info->block_elems * info->block_bytes;
    if (bytes > most) return false;
    tensor.bytes = static_cast<std::uint64_t>(bytes);
    file.tensors.push_back(tensor);
  }
  return true;
}

bool place(Wide header_end, Wide size, Wide alignment, PlainGguf& file) {
  const Wide start = (header_end + alignment - 1) / alignment * alignment;
  for (PlainTensor& tensor : file.tensors) {
    if (tensor.offset % alignment != 0 || start + tensor.offset + tensor.bytes > size) return false;
    tensor.offset += static_cast<std::uint64_t>(start);
  }
  for (std::size_t a = 0; a < file.tensors.size(); ++a)  // every pair, slow and plain
    for (std::size_t b = 0; b < a; ++b)
      if (file.tensors[a].offset < file.tensors[b].offset + file.tensors[b].bytes &&
          file.tensors[b].offset < file.tensors[a].offset + file.tensors[a].bytes)
        return false;
  return true;
}

}  // namespace

std::optional<PlainGguf> read_gguf_plainly(std::string_view bytes) {
  Cursor in{bytes};
  if (in.take(4) != "GGUF") return std::nullopt;
  const auto version = in.number<std::uint32_t>();
  const auto tensors = in.number<std::uint64_t>();
  const auto pairs = in.number<std::uint64_t>();
  if (in.bad || (version != 2 && version != 3)) return std::nullopt;
  PlainGguf file;
  Wide alignment = 32;
  std::map<std::string, std::uint64_t> array_lengths;
  if (!read_meta(in, pairs, file, alignment, array_lengths)) return std::nullopt;
  if (!read_tensors(in, tensors, file)) return std::nullopt;
  if (!place(in.at, bytes.size(), alignment, file)) return std::nullopt;
  return file;
}

}  // namespace millrace::testing
