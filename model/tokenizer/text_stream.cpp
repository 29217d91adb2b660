#include "model/tokenizer/text_stream.h"

#include "runtime/base/utf8.h"

namespace millrace {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";
constexpr std::size_t buffer_bytes_start = 256;

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, TextStreamOptions options)
    : tokenizer_(tokenizer),
      options_(options),
      drop_space_(options.at_start && tokenizer.has_space_prefix()) {
  held_.reserve(buffer_bytes_start);
  ready_.reserve(buffer_bytes_start);
}

std::string_view TextStream::push(TokenId id) {
  std::string_view bytes = tokenizer_.token_bytes(id, options_.show_special);
  if (drop_space_ && !bytes.empty()) {
    drop_space_ = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  ready_.clear();
  held_ += bytes;
  std::string_view rest = held_;
  while (!rest.empty()) {
    if (const std::size_t length = utf8_valid_length(rest); length > 0) {
      ready_ += rest.substr(0, length);
      rest.remove_prefix(length);
    } else if (utf8_is_incomplete(rest)) {
      break;
    } else {
      ready_ += replacement;
      rest.remove_prefix(1);
    }
  }
  held_.erase(0, held_.size() - rest.size());
  return ready_;
}

std::string_view TextStream::flush() {
  ready_.clear();
  for (std::size_t i = 0; i < held_.size(); ++i) ready_ += replacement;
  held_.clear();
  drop_space_ = options_.at_start && tokenizer_.has_space_prefix();
  return ready_;
}

}  // namespace millrace
