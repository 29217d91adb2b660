// Expressions, by precedence as in Jinja: conditional, or, and, not, comparisons, + -, ~, * / // %,
// **, signs, then what follows a value (attributes, items, calls), filters and tests.
#pragma once

#include "model/chat/jinja/expression.h"
#include "model/chat/jinja/parser.h"

namespace millrace::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(ParserState& state) : state_(state) {}

  // One expression; with `conditional` off, no `x if y else z` (the list of a `for`).
  Result<ExpressionPtr> expression(bool conditional = true);
  // One expression, or several with commas between them as a tuple.
  Result<ExpressionPtr> expression_or_tuple(bool conditional = true);
  // The filters behind a block's tag: "name(…) | name …", applied to the block's text.
  Result<ExpressionPtr> block_filters();

 private:
  using Part = Result<ExpressionPtr> (ExpressionParser::*)();

  Result<ExpressionPtr> conditional_expression();
  Result<ExpressionPtr> or_expression();
  Result<ExpressionPtr> and_expression();
  Result<ExpressionPtr> not_expression();
  Result<ExpressionPtr> comparison();
  Result<ExpressionPtr> sum();
  Result<ExpressionPtr> concatenation();
  Result<ExpressionPtr> product();
  Result<ExpressionPtr> power();
  Result<ExpressionPtr> unary() { return signed_value(true); }
  Result<ExpressionPtr> signed_value(bool with_filters);
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> name_or_constant();
  Result<ExpressionPtr> parenthesized();
  Result<ExpressionPtr> list_literal();
  Result<ExpressionPtr> dict_literal();
  Result<ExpressionPtr> after_value(ExpressionPtr value);
  Result<ExpressionPtr> filters_and_tests(ExpressionPtr value);
  Result<ExpressionPtr> attribute(ExpressionPtr object);
  Result<ExpressionPtr> subscript(ExpressionPtr object);
  Result<ExpressionPtr> filter(ExpressionPtr input);
  Result<ExpressionPtr> test(ExpressionPtr input);
  Status arguments(Expression& call);

  // Several of `part` between the word or symbol, as one node; a single one as itself.
  Result<ExpressionPtr> chain(ExpressionKind kind, Part part, bool (*at_separator)(const Token&));
  Result<ExpressionPtr> left_associative(Part part,
                                         std::initializer_list<std::string_view> symbols);

  ExpressionPtr make(ExpressionKind kind) const;
  // The height of the finished node; an error if it is too high.
  Result<ExpressionPtr> finish(ExpressionPtr node) const;

  ParserState& state_;
};

}  // namespace millrace::jinja
