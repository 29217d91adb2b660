#include "model/chat/jinja/text.h"

#include <algorithm>

#include "model/chat/jinja/budget.h"
#include "runtime/base/check.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace millrace::jinja {

namespace {

bool is_continuation(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

}  // namespace

Text::Text(std::string bytes, std::vector<TextRange> foreign, Budget* budget)
    : bytes_(std::move(bytes)), foreign_(std::move(foreign)), budget_(budget) {
  characters_ = static_cast<std::size_t>(std::count_if(
      bytes_.begin(), bytes_.end(), [](char byte) { return !is_continuation(byte); }));
  if (budget_ == nullptr) return;
  accounted_ = sizeof(Text) + bytes_.capacity() + foreign_.capacity() * sizeof(TextRange);
  budget_->claim_bytes(accounted_);
  budget_->work_bytes(bytes_.size());
}

Text::~Text() {
  if (budget_ != nullptr) budget_->release_bytes(accounted_);
}

std::size_t Text::length_at(std::size_t byte) const noexcept {
  std::size_t end = byte + 1;
  while (end < bytes_.size() && is_continuation(bytes_[end])) ++end;
  return end - byte;
}

std::size_t Text::byte_of(std::size_t index, Budget& budget) const noexcept {
  MILLRACE_DCHECK(index <= characters_);
  if (characters_ == bytes_.size()) return index;
  if (index == characters_) return bytes_.size();
  budget.work(1 + index / 8);
  std::size_t byte = 0;
  for (std::size_t i = 0; i < index; ++i) byte += length_at(byte);
  return byte;
}

bool Text::is_foreign(std::size_t byte) const noexcept {
  const auto after =
      std::upper_bound(foreign_.begin(), foreign_.end(), byte,
                       [](std::size_t value, const TextRange& range) { return value < range.end; });
  return after != foreign_.end() && after->begin <= byte;
}

TextRef make_text(std::string_view bytes) {
  return std::make_shared<const Text>(utf8_replace_invalid(bytes), std::vector<TextRange>{},
                                      nullptr);
}

bool TextBuilder::has_room(std::size_t bytes) noexcept {
  if (bytes <= limits::template_string_bytes_max - bytes_.size()) return true;
  overflowed_ = true;
  return false;
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!foreign_.empty() && foreign_.back().end == begin) foreign_.back().end = end;
  else foreign_.push_back({begin, end});
}

TextBuilder& TextBuilder::append(std::string_view bytes, bool foreign) {
  if (!has_room(bytes.size())) return *this;
  if (foreign) mark(bytes_.size(), bytes_.size() + bytes.size());
  bytes_ += bytes;
  return *this;
}

TextBuilder& TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
  MILLRACE_DCHECK(begin <= end && end <= text.size());
  if (!has_room(end - begin)) return *this;
  const auto& ranges = text.foreign();
  auto range = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                [](std::size_t at, const TextRange& r) { return at < r.end; });
  for (; range != ranges.end() && range->begin < end; ++range)
    mark(bytes_.size() + std::max(range->begin, begin) - begin,
         bytes_.size() + std::min(range->end, end) - begin);
  bytes_ += text.view().substr(begin, end - begin);
  return *this;
}

TextBuilder& TextBuilder::append_repeated(const Text& text, std::int64_t times) {
  if (times <= 0 || text.empty()) return *this;
  const auto count = static_cast<std::uint64_t>(times);
  if (count > limits::template_string_bytes_max / text.size() || !has_room(count * text.size())) {
    overflowed_ = true;
    return *this;
  }
  bytes_.reserve(bytes_.size() + count * text.size());
  budget_->work(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (text.foreign().empty()) bytes_ += text.view();
    else append(text);
  }
  return *this;
}

TextBuilder& TextBuilder::append_as(std::string_view bytes, const Text& source, std::size_t at) {
  return append(bytes, source.is_foreign(at));
}

TextRef TextBuilder::finish() {
  if (overflowed_) budget_->string_too_long();
  TextRef made = std::make_shared<const Text>(std::move(bytes_), std::move(foreign_), budget_);
  bytes_.clear();
  foreign_.clear();
  overflowed_ = false;
  return made;
}

TextRef slice(const TextRef& text, std::size_t begin, std::size_t end, Budget& budget) {
  if (begin == 0 && end == text->size()) return text;
  TextBuilder builder(budget);
  builder.append(*text, begin, end);
  return builder.finish();
}

}  // namespace millrace::jinja
