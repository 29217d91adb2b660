// What the lexer makes of a template.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::jinja {

enum class TokenKind : std::uint8_t {
  data,            // text outside of tags, white space control applied
  variable_begin,  // {{
  variable_end,    // }}
  block_begin,     // {%
  block_end,       // %}
  name,
  string,  // text: decoded
  integer,
  floating,
  symbol,  // text: one of the operators, brackets, separators
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  unsigned line = 1;
  std::string text;
  std::int64_t integer = 0;
  double floating = 0;
};

using Tokens = std::vector<Token>;  // the last one is `end`

}  // namespace millrace::jinja
