// Strings of the template language: UTF-8 bytes, and which of them are foreign, i.e. come from the
// caller's conversation and not from the template. Every operation carries that along, so that the
// tokenizer can keep foreign text from becoming control tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/text_range.h"

namespace millrace::jinja {

class Budget;

// Immutable and shared. Always valid UTF-8.
class Text {
 public:
  // `budget` may be null (texts of the template itself); else it must outlive the text.
  Text(std::string bytes, std::vector<TextRange> foreign, Budget* budget);
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  const std::string& bytes() const noexcept { return bytes_; }
  std::string_view view() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return bytes_.size(); }  // bytes
  bool empty() const noexcept { return bytes_.empty(); }
  // Code points.
  std::size_t characters() const noexcept { return characters_; }
  // Byte position of a character; `index` is at most characters().
  std::size_t byte_of(std::size_t index, Budget& budget) const noexcept;
  // The character that begins at a byte: how many bytes it has.
  std::size_t length_at(std::size_t byte) const noexcept;
  // Ascending, not empty, not touching.
  const std::vector<TextRange>& foreign() const noexcept { return foreign_; }
  bool is_foreign(std::size_t byte) const noexcept;

 private:
  std::string bytes_;
  std::vector<TextRange> foreign_;
  std::size_t characters_ = 0;
  std::size_t accounted_ = 0;
  Budget* budget_ = nullptr;
};

using TextRef = std::shared_ptr<const Text>;

// A text of the template, without an account. Invalid UTF-8 becomes U+FFFD.
TextRef make_text(std::string_view bytes);

// Puts a text together. Beyond the longest text that is allowed it takes no more, and finish()
// reports to the budget, which ends the rendering.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(&budget) {}

  TextBuilder& append(std::string_view bytes, bool foreign = false);
  TextBuilder& append(const Text& text) { return append(text, 0, text.size()); }
  // The bytes [begin, end) of `text`.
  TextBuilder& append(const Text& text, std::size_t begin, std::size_t end);
  // `text` so often; 0 and less: not at all. What would be too long is not begun.
  TextBuilder& append_repeated(const Text& text, std::int64_t times);
  // `bytes` in place of what is at byte `at` of `source`: foreign if that is.
  TextBuilder& append_as(std::string_view bytes, const Text& source, std::size_t at);

  std::size_t size() const noexcept { return bytes_.size(); }
  bool overflowed() const noexcept { return overflowed_; }
  TextRef finish();

 private:
  bool has_room(std::size_t bytes) noexcept;
  void mark(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<TextRange> foreign_;
  bool overflowed_ = false;
  Budget* budget_;
};

// [begin, end) of a text, itself if that is all of it.
TextRef slice(const TextRef& text, std::size_t begin, std::size_t end, Budget& budget);

}  // namespace millrace::jinja
