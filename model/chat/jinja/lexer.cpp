#include "model/chat/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/string_literal.h"
#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

namespace millrace::jinja {

namespace {

bool is_digit_byte(char byte) noexcept { return byte >= '0' && byte <= '9'; }
bool is_name_byte(char byte) noexcept {
  return is_digit_byte(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         byte == '_' || static_cast<unsigned char>(byte) >= 0x80;
}

// Newlines in all their forms become \n, and one at the end goes.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// How many bytes of white space `text` begins with.
std::size_t leading_space(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    const Character character = first_character(text.substr(at));
    if (!is_space(character.code)) break;
    at += character.bytes;
  }
  return at;
}

// `text` without the white space at its end.
std::string_view without_trailing_space(std::string_view text) noexcept {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
    if (!is_space(first_character(text.substr(begin)).code)) break;
    end = begin;
  }
  return text.substr(0, end);
}

constexpr std::array<std::string_view, 26> symbols = {
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), rest_(source_) {}

  Result<Tokens> run() {
    while (!rest_.empty()) MILLRACE_TRY(next_part());
    push(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  Error error(const std::string& what) const {
    return Error{ErrorCode::format, fmt::format("line {}: {}", line_, what)};
  }

  void push(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  void skip(std::size_t bytes) {
    if (bytes == 0) return;
    at_line_start_ = rest_[bytes - 1] == '\n';
    line_ += static_cast<unsigned>(
        std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(bytes), '\n'));
    rest_.remove_prefix(bytes);
  }

  // Text up to the next tag, then that tag.
  Status next_part() {
    std::size_t at = rest_.find('{');
    while (at != std::string_view::npos && !(at + 1 < rest_.size() && is_tag(rest_[at + 1])))
      at = rest_.find('{', at + 1);
    const std::string_view text = rest_.substr(0, at);
    const std::string_view tag = at == std::string_view::npos ? "" : rest_.substr(at);
    const char kind = tag.empty() ? '\0' : tag[1];
    const char sign = tag.size() > 2 && (tag[2] == '-' || tag[2] == '+') ? tag[2] : '\0';
    const std::string_view shown = before_tag(text, kind, sign);
    if (!shown.empty()) push(TokenKind::data, std::string(shown));
    skip(text.size());
    if (tag.empty()) return {};
    if (kind == '#') return comment();
    const std::size_t begin = sign != '\0' ? 3 : 2;
    if (kind == '%') {
      if (const std::size_t raw_bytes = raw_tag(tag, begin, "raw"); raw_bytes != 0)
        return raw_block(raw_bytes);
    }
    push(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin);
    skip(begin);
    return inside_tag(kind == '{');
  }

  static bool is_tag(char second) noexcept {
    return second == '{' || second == '%' || second == '#';
  }

  // What is left of the text before a tag: the sign '-' takes all white space; without '+',
  // blanks between the line's begin and a block or comment go.
  std::string_view before_tag(std::string_view text, char kind, char sign) const {
    if (sign == '-') return without_trailing_space(text);
    if (kind == '\0' || kind == '{' || sign == '+') return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !at_line_start_) return text;
    const std::string_view blanks = text.substr(line_begin);
    return leading_space(blanks) == blanks.size() ? text.substr(0, line_begin) : text;
  }

  // Length of the closing mark ("%}", "-%}" …) at `at`, with the white space that it takes; 0 if
  // there is none.
  static std::size_t closing(std::string_view text, std::size_t at, char mark, bool trims) {
    std::size_t end = at;
    char sign = '\0';
    if (end < text.size() && (text[end] == '-' || (text[end] == '+' && trims))) sign = text[end++];
    if (end + 1 >= text.size() || text[end] != mark || text[end + 1] != '}') return 0;
    end += 2;
    if (sign == '-') end += leading_space(text.substr(end));
    else if (sign != '+' && trims && end < text.size() && text[end] == '\n') ++end;
    return end - at;
  }

  Status comment() {
    for (std::size_t at = rest_.find("#}", 2); at != std::string_view::npos;) {
      const bool has_sign = at > 2 && (rest_[at - 1] == '-' || rest_[at - 1] == '+');
      const std::size_t from = has_sign ? at - 1 : at;
      skip(from + closing(rest_, from, '#', true));
      return {};
    }
    return error("a comment {# has no end #}");
  }

  // The length of "{%- raw -%}" (or endraw) at the start of `tag`; 0 if it is another tag.
  static std::size_t raw_tag(std::string_view tag, std::size_t begin, std::string_view word) {
    std::size_t at = begin + leading_space(tag.substr(begin));
    if (tag.substr(at, word.size()) != word) return 0;
    at += word.size();
    at += leading_space(tag.substr(at));
    const std::size_t closed = closing(tag, at, '%', word == "endraw");
    return closed == 0 ? 0 : at + closed;
  }

  Status raw_block(std::size_t tag_bytes) {
    skip(tag_bytes);
    for (std::size_t at = rest_.find("{%"); at != std::string_view::npos;
         at = rest_.find("{%", at + 2)) {
      const std::string_view tag = rest_.substr(at);
      const char sign = tag.size() > 2 && (tag[2] == '-' || tag[2] == '+') ? tag[2] : '\0';
      const std::size_t bytes = raw_tag(tag, sign != '\0' ? 3 : 2, "endraw");
      if (bytes == 0) continue;
      const std::string_view shown = before_tag(rest_.substr(0, at), '%', sign);
      if (!shown.empty()) push(TokenKind::data, std::string(shown));
      skip(at + bytes);
      return {};
    }
    return error("{% raw %} has no {% endraw %}");
  }

  Status inside_tag(bool variable) {
    open_.clear();
    const char mark = variable ? '}' : '%';
    while (true) {
      skip(leading_space(rest_));
      if (rest_.empty()) return error(fmt::format("a tag {} has no end", variable ? "{{" : "{%"));
      if (open_.empty()) {
        if (const std::size_t bytes = closing(rest_, 0, mark, !variable); bytes != 0) {
          push(variable ? TokenKind::variable_end : TokenKind::block_end);
          skip(bytes);
          return {};
        }
      }
      MILLRACE_TRY(one_token());
    }
  }

  Status one_token() {
    const char first = rest_.front();
    if (first == '\'' || first == '"') return string_token();
    if (is_digit_byte(first)) return number_token();
    if (is_name_byte(first)) {
      std::size_t end = 1;
      while (end < rest_.size() && is_name_byte(rest_[end])) ++end;
      push(TokenKind::name, std::string(rest_.substr(0, end)));
      skip(end);
      return {};
    }
    for (const std::string_view symbol : symbols) {
      if (!rest_.starts_with(symbol)) continue;
      MILLRACE_TRY(balance(first));
      push(TokenKind::symbol, std::string(symbol));
      skip(symbol.size());
      return {};
    }
    return error(fmt::format("unexpected character '{}'", printable(rest_.substr(0, 1))));
  }

  // Inside brackets "}}" and "%}" end no tag.
  Status balance(char symbol) {
    if (symbol == '(' || symbol == '[' || symbol == '{') {
      open_.push_back(symbol);
    } else if (symbol == ')' || symbol == ']' || symbol == '}') {
      const char wanted = symbol == ')' ? '(' : symbol == ']' ? '[' : '{';
      if (open_.empty() || open_.back() != wanted)
        return error(fmt::format("unexpected '{}'", symbol));
      open_.pop_back();
    }
    return {};
  }

  Status string_token() {
    const char quote = rest_.front();
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return error("a string has no end");
    auto decoded = decode_string_literal(rest_.substr(1, end - 1));
    if (!decoded) return error(decoded.error().what);
    push(TokenKind::string, std::move(*decoded));
    skip(end + 1);
    return {};
  }

  // Digits with single underscores between them; returns where they end.
  std::size_t digits_end(std::size_t at) const {
    while (at < rest_.size() &&
           (is_digit_byte(rest_[at]) || (rest_[at] == '_' && at + 1 < rest_.size() && at > 0 &&
                                         is_digit_byte(rest_[at + 1]) && rest_[at - 1] != '_')))
      ++at;
    return at;
  }

  Status number_token() {
    if (rest_.size() > 2 && rest_[0] == '0' && !is_digit_byte(rest_[1]) && rest_[1] != '_') {
      const char base = static_cast<char>(rest_[1] | 32);
      if (base == 'x' || base == 'o' || base == 'b')
        return based_integer(base == 'x' ? 16 : base == 'o' ? 8 : 2);
    }
    const std::size_t whole_end = digits_end(0);
    std::size_t end = whole_end;
    // In x.1.0 the numbers are two items, not one fraction.
    const bool item =
        !tokens_.empty() && tokens_.back().kind == TokenKind::symbol && tokens_.back().text == ".";
    if (!item && end + 1 < rest_.size() && rest_[end] == '.' && is_digit_byte(rest_[end + 1]))
      end = digits_end(end + 1);
    if (!item && end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      std::size_t digits = end + 1;
      if (digits < rest_.size() && (rest_[digits] == '+' || rest_[digits] == '-')) ++digits;
      if (digits < rest_.size() && is_digit_byte(rest_[digits])) end = digits_end(digits);
    }
    std::string text(rest_.substr(0, end));
    std::erase(text, '_');
    Token token;
    token.line = line_;
    token.kind = end == whole_end ? TokenKind::integer : TokenKind::floating;
    const auto parsed =
        end == whole_end ? std::from_chars(text.data(), text.data() + text.size(), token.integer)
                         : std::from_chars(text.data(), text.data() + text.size(), token.floating);
    if (parsed.ec != std::errc()) return error(fmt::format("the number {} is too large", text));
    tokens_.push_back(std::move(token));
    skip(end);
    return {};
  }

  Status based_integer(int base) {
    Token token;
    token.line = line_;
    token.kind = TokenKind::integer;
    const auto parsed =
        std::from_chars(rest_.data() + 2, rest_.data() + rest_.size(), token.integer, base);
    if (parsed.ec != std::errc()) return error("a number is malformed or too large");
    tokens_.push_back(std::move(token));
    skip(static_cast<std::size_t>(parsed.ptr - rest_.data()));
    return {};
  }

  std::string source_;
  std::string_view rest_;
  unsigned line_ = 1;
  bool at_line_start_ = true;
  std::vector<char> open_;
  Tokens tokens_;
};

}  // namespace

Result<Tokens> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace millrace::jinja
