// The tree of an expression, as the parser builds it. Immutable while templates run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/chat/jinja/value.h"

namespace millrace::jinja {

struct Builtin;

// Names of variables, numbered within a template.
using Symbol = std::uint32_t;

enum class ExpressionKind : std::uint8_t {
  constant,    // constant
  name,        // symbol, text, builtin (what it means unless a variable has the name)
  list,        // children
  tuple,       // children
  dict,        // children: key, value, key, value …
  attribute,   // children: object; text
  item,        // children: object, index
  slice,       // children: object, begin, end, step (null where absent)
  call,        // children: callee, arguments …; keywords
  filter,      // children: input, arguments …; keywords; text, builtin
  test,        // children: input, arguments …; keywords; text, builtin; negated
  block_text,  // the text of the block that a filter is applied to
  negate,      // children: one, as for the next two
  plus,
  not_,
  and_,         // children: two or more
  or_,          // children: two or more
  concat,       // children: two or more
  arithmetic,   // children: two; operators: one
  compare,      // children: n; operators: n - 1
  conditional,  // children: value, condition, otherwise (null if absent)
};

enum class Operator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  bool negated = false;
  unsigned line = 0;
  unsigned height = 1;  // of the tree below, bounded by the parser
  Symbol symbol = 0;
  TextRef text;
  Value constant;
  const Builtin* builtin = nullptr;  // null: unknown, an error once it is evaluated
  std::vector<ExpressionPtr> children;
  std::vector<Operator> operators;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
};

}  // namespace millrace::jinja
