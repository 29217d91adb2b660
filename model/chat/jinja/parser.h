// Tokens to trees. Statements are parsed in parser.cpp, expressions in expression_parser.cpp.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "model/chat/jinja/statement.h"
#include "model/chat/jinja/token.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

// `format` errors name the line and what was found where something else was wanted; include,
// import, extends and other tags that chat templates do not need are refused by name.
// Filters and tests that are unknown are errors only once they are evaluated, as in Jinja.
Result<Program> parse(std::string_view source);

// Both halves share this: where the parser is in the tokens, and the names so far.
class ParserState {
 public:
  explicit ParserState(Tokens tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const noexcept { return tokens_[at_]; }
  const Token& following() const noexcept {
    return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
  }
  void advance() noexcept {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool at(TokenKind kind) const noexcept { return current().kind == kind; }
  bool at_symbol(std::string_view text) const noexcept {
    return at(TokenKind::symbol) && current().text == text;
  }
  bool at_name(std::string_view text) const noexcept {
    return at(TokenKind::name) && current().text == text;
  }
  // Steps over it if it is there.
  bool take_symbol(std::string_view text);
  bool take_name(std::string_view text);
  Status expect_symbol(std::string_view text);
  Status expect_name(std::string_view text);
  Status expect(TokenKind kind);
  Result<std::string> take_any_name();  // an identifier

  Error error(std::string_view what) const;         // at the current token's line
  Error unexpected(std::string_view wanted) const;  // names the current token

  Symbol symbol(const std::string& name);
  std::vector<std::string> take_symbols() { return std::move(symbol_names_); }

  // Counts nesting; an error if it gets too deep. leave() on every way out.
  Status enter();
  void leave() noexcept { --nesting_; }

 private:
  Tokens tokens_;
  std::size_t at_ = 0;
  unsigned nesting_ = 0;
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<std::string> symbol_names_;
};

}  // namespace millrace::jinja
