// The tree of a template, as the parser builds it. Immutable while it runs, so that any number of
// renderings may share it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/chat/jinja/expression.h"

namespace millrace::jinja {

enum class StatementKind : std::uint8_t {
  data,          // text
  output,        // expression
  if_,           // branches, otherwise
  for_,          // target, expression, condition (may be null), body, otherwise
  set,           // target, expression
  set_block,     // target, body, expression (filters on block_text; null: none)
  macro,         // symbol, name, parameters, body
  call_block,    // expression (a call), parameters, body
  filter_block,  // body, expression (filters on block_text)
  with,          // assignments, body
  scoped,        // body, in a scope of its own (generation)
  break_,
  continue_,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// What is assigned to: a name, several (unpacking), or an attribute of a namespace.
struct Target {
  std::vector<Symbol> symbols;  // one, or more
  bool unpacks = false;         // also with one symbol: `for x, in list`
  TextRef attribute;            // of the one symbol; null: the name itself
  TextRef name;                 // of the first symbol, for messages
};

struct Parameter {
  Symbol symbol = 0;
  TextRef name;
  ExpressionPtr fallback;  // null: none
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::data;
  unsigned line = 0;
  Symbol symbol = 0;
  TextRef text;
  TextRef name;
  Target target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Body body;
  Body otherwise;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
};

// Names with a meaning have the first numbers.
inline constexpr Symbol caller_symbol = 0;
inline constexpr Symbol loop_symbol = 1;

// A whole template.
struct Program {
  Body body;
  std::vector<std::string> symbols;  // names by number
};

}  // namespace millrace::jinja
