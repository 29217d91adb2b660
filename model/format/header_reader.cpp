#include "model/format/header_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr std::size_t path_bytes_max = 4096;

}  // namespace

Error HeaderReader::error(ErrorCode code, std::string_view detail) const {
  return Error{code,
               fmt::format("{}: {}: {}", printable(source_.path, path_bytes_max), where_, detail)};
}

Status HeaderReader::claim(std::uint64_t count, std::uint64_t bytes_each) {
  const std::uint64_t left = memory_bytes_max - memory_bytes_;
  if (bytes_each != 0 && count > left / bytes_each)
    return malformed(
        fmt::format("{} values of {} bytes in memory exceed the limit of {} for the "
                    "metadata of one file",
                    count, bytes_each, format_bytes(memory_bytes_max)));
  memory_bytes_ += count * bytes_each;
  return {};
}

Status HeaderReader::bytes(void* target, std::uint64_t count) {
  if (count > bytes_left())
    return malformed(fmt::format(
        "the file ends at byte {}, but {} more bytes are needed at byte {}: is the download "
        "complete?",
        size_bytes(), count, position_));
  auto* out = static_cast<std::byte*>(target);
  while (count > 0) {
    if (position_ == buffer_end_) MILLRACE_TRY(refill());
    const std::uint64_t step = std::min(count, buffer_end_ - position_);
    std::memcpy(out, buffer_.data() + (position_ - buffer_begin_), step);
    position_ += step;
    out += step;
    count -= step;
  }
  return {};
}

Result<std::string> HeaderReader::string(std::uint64_t bytes_max) {
  MILLRACE_ASSIGN(const std::uint64_t length, number<std::uint64_t>());
  if (length > bytes_left())
    return malformed(
        fmt::format("a text of {} bytes at byte {}, but the file has only {} bytes "
                    "more: is the download complete?",
                    length, position_, bytes_left()));
  if (length > bytes_max)
    return malformed(fmt::format("a text of {} bytes, at most {} are allowed", length, bytes_max));
  MILLRACE_TRY(claim(length, 1));
  std::string text(length, '\0');
  MILLRACE_TRY(bytes(text.data(), length));
  return text;
}

// Reads the next chunk; called when everything before has been consumed and more is there.
Status HeaderReader::refill() {
  const std::uint64_t chunk = std::clamp(buffer_end_, chunk_bytes_min, chunk_bytes_max);
  const std::uint64_t take = std::min(chunk, size_bytes() - buffer_end_);
  MILLRACE_CHECK(take > 0);
  buffer_.resize(take);
  MILLRACE_TRY(source_.read(buffer_end_, buffer_.data(), take));
  buffer_begin_ = buffer_end_;
  buffer_end_ += take;
  return {};
}

}  // namespace millrace
