#include "model/format/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <utility>
#include <variant>

#include "model/format/gguf_tensors.h"
#include "model/format/gguf_values.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr std::uint64_t header_bytes = 24;    // magic, version, two counts
constexpr std::uint64_t pair_bytes_min = 13;  // key length, empty key, type, one byte
constexpr std::uint64_t tensor_info_bytes_min = 24;
constexpr std::uint64_t count_max = std::uint64_t{1} << 31;
constexpr std::string_view alignment_key = "general.alignment";

struct Counts {
  std::uint64_t tensors = 0;
  std::uint64_t pairs = 0;
};

Status check_version(const HeaderReader& reader, std::uint32_t version) {
  if (version == 2 || version == 3) return {};
  if (version != 0 && (version & 0xFFFFu) == 0)
    return reader.error(ErrorCode::unsupported,
                        "the file is byte-swapped: it was made for a big-endian machine; get the "
                        "little-endian one");
  if (version == 1)
    return reader.error(ErrorCode::unsupported,
                        "GGUF version 1 is too old; convert the model again (versions 2 and 3 are "
                        "read)");
  return reader.error(ErrorCode::unsupported,
                      fmt::format("GGUF version {}, but only 2 and 3 are known", version));
}

Status check_count(const HeaderReader& reader, const char* things, std::uint64_t count,
                   std::uint64_t room) {
  const std::uint64_t most = std::min(room, count_max);
  if (count <= most) return {};
  return reader.malformed(fmt::format("{} {}, but a file of {} bytes has at most {}", count, things,
                                      reader.size_bytes(), most));
}

Result<Counts> read_header(HeaderReader& reader) {
  std::array<char, 4> magic = {};
  const std::uint64_t magic_bytes = std::min<std::uint64_t>(magic.size(), reader.size_bytes());
  MILLRACE_TRY(reader.bytes(magic.data(), magic_bytes));
  const std::string_view start(magic.data(), magic_bytes);
  if (start != std::string_view("GGUF").substr(0, magic_bytes))
    return reader.malformed(
        fmt::format("not a GGUF file: it starts with '{}', not 'GGUF'", printable(start)));
  if (reader.size_bytes() < header_bytes)
    return reader.malformed(
        fmt::format("a file of {} bytes is too short for GGUF: is the download "
                    "complete?",
                    reader.size_bytes()));
  MILLRACE_ASSIGN(const std::uint32_t version, reader.number<std::uint32_t>());
  MILLRACE_TRY(check_version(reader, version));
  Counts counts;
  MILLRACE_ASSIGN(counts.tensors, reader.number<std::uint64_t>());
  MILLRACE_ASSIGN(counts.pairs, reader.number<std::uint64_t>());
  MILLRACE_TRY(
      check_count(reader, "tensors", counts.tensors, reader.size_bytes() / tensor_info_bytes_min));
  MILLRACE_TRY(check_count(reader, "metadata keys", counts.pairs,
                           (reader.size_bytes() - header_bytes) / pair_bytes_min));
  return counts;
}

Status read_pair(HeaderReader& reader, std::uint64_t index, GgufFile& file) {
  reader.enter(fmt::format("metadata key {}", index));
  MILLRACE_TRY(reader.claim(1, 2 * sizeof(std::string) + sizeof(MetaValue)));
  MILLRACE_ASSIGN(std::string key, reader.string(gguf_key_bytes_max));
  if (key.empty()) return reader.malformed("the key is empty");
  reader.enter(fmt::format("key '{}'", printable(key)));
  if (file.meta.contains(key)) return reader.malformed("the key appears twice");
  MILLRACE_ASSIGN(const std::uint32_t type, reader.number<std::uint32_t>());
  if (key == alignment_key && type != static_cast<std::uint32_t>(GgufType::u32))
    return reader.malformed(fmt::format("value type {}, but it must be u32 (4)", type));
  MILLRACE_ASSIGN(MetaValue value, read_gguf_value(reader, type));
  file.keys.push_back(key);
  file.meta.emplace(std::move(key), std::move(value));
  return {};
}

Result<std::uint64_t> alignment_of(HeaderReader& reader, const GgufFile& file) {
  const auto found = file.meta.find(std::string(alignment_key));
  if (found == file.meta.end()) return std::uint64_t{gguf_alignment_default};
  const auto* value = std::get_if<std::uint64_t>(&found->second);
  MILLRACE_CHECK(value != nullptr);  // read_pair took only u32
  if (std::has_single_bit(*value) && *value <= gguf_alignment_max) return *value;
  reader.enter(fmt::format("key '{}'", alignment_key));
  return reader.malformed(
      fmt::format("{} is not a power of two up to {}", *value, gguf_alignment_max));
}

// Elements of an array of any kind; false for a scalar.
bool array_length(const MetaValue& value, std::uint64_t& length) {
  return std::visit(
      [&](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (!std::is_arithmetic_v<Held> && !std::is_same_v<Held, std::string>) {
          length = held.size();
          return true;
        } else {
          return false;
        }
      },
      value);
}

// The arrays that describe tokens have one entry per token.
Status check_token_arrays(HeaderReader& reader, const GgufFile& file) {
  const auto tokens = file.meta.find("tokenizer.ggml.tokens");
  if (tokens == file.meta.end()) return {};
  std::uint64_t expected = 0;
  reader.enter("key 'tokenizer.ggml.tokens'");
  if (!array_length(tokens->second, expected)) return reader.malformed("not an array");
  for (const char* key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    const auto other = file.meta.find(key);
    if (other == file.meta.end()) continue;
    std::uint64_t length = 0;
    reader.enter(fmt::format("key '{}'", key));
    if (!array_length(other->second, length)) return reader.malformed("not an array");
    if (length != expected)
      return reader.malformed(fmt::format("{} entries for {} tokens", length, expected));
  }
  return {};
}

}  // namespace

Result<GgufFile> read_gguf_file(const ByteSource& source) {
  HeaderReader reader(source);
  MILLRACE_ASSIGN(const Counts counts, read_header(reader));
  GgufFile file;
  for (std::uint64_t i = 0; i < counts.pairs; ++i) MILLRACE_TRY(read_pair(reader, i, file));
  MILLRACE_ASSIGN(file.tensors, read_gguf_tensors(reader, counts.tensors));
  file.metadata_bytes = reader.bytes_read();
  MILLRACE_ASSIGN(const std::uint64_t alignment, alignment_of(reader, file));
  MILLRACE_TRY(
      place_gguf_tensors(reader, round_up(reader.position(), alignment), alignment, file.tensors));
  MILLRACE_TRY(check_token_arrays(reader, file));
  return file;
}

}  // namespace millrace
