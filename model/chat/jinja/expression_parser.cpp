#include "model/chat/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/chat/jinja/callable.h"
#include "runtime/base/limits.h"

namespace millrace::jinja {

namespace {

Operator arithmetic_operator(std::string_view symbol) {
  if (symbol == "+") return Operator::add;
  if (symbol == "-") return Operator::subtract;
  if (symbol == "*") return Operator::multiply;
  if (symbol == "/") return Operator::divide;
  if (symbol == "//") return Operator::floor_divide;
  if (symbol == "%") return Operator::modulo;
  MILLRACE_CHECK(symbol == "**");
  return Operator::power;
}

bool comparison_operator(const Token& token, Operator& out) {
  if (token.kind != TokenKind::symbol) return false;
  if (token.text == "==") out = Operator::equal;
  else if (token.text == "!=") out = Operator::unequal;
  else if (token.text == "<") out = Operator::less;
  else if (token.text == "<=") out = Operator::less_equal;
  else if (token.text == ">") out = Operator::greater;
  else if (token.text == ">=") out = Operator::greater_equal;
  else return false;
  return true;
}

bool ends_tuple(const Token& token) {
  return token.kind == TokenKind::variable_end || token.kind == TokenKind::block_end ||
         (token.kind == TokenKind::symbol && (token.text == ")" || token.text == "="));
}

}  // namespace

ExpressionPtr ExpressionParser::make(ExpressionKind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = state_.current().line;
  return node;
}

Result<ExpressionPtr> ExpressionParser::finish(ExpressionPtr node) const {
  unsigned height = 0;
  for (const ExpressionPtr& child : node->children)
    if (child != nullptr) height = std::max(height, child->height);
  for (const auto& [name, value] : node->keywords) height = std::max(height, value->height);
  node->height = height + 1;
  if (node->height > limits::template_nesting_max)
    return state_.error(
        fmt::format("an expression is nested deeper than {}", limits::template_nesting_max));
  return node;
}

Result<ExpressionPtr> ExpressionParser::expression(bool conditional) {
  MILLRACE_TRY(state_.enter());
  auto parsed = conditional ? conditional_expression() : or_expression();
  state_.leave();
  return parsed;
}

Result<ExpressionPtr> ExpressionParser::expression_or_tuple(bool conditional) {
  ExpressionPtr tuple = make(ExpressionKind::tuple);
  MILLRACE_ASSIGN(ExpressionPtr first, expression(conditional));
  if (!state_.at_symbol(",")) return first;
  tuple->children.push_back(std::move(first));
  while (state_.take_symbol(",") && !ends_tuple(state_.current())) {
    MILLRACE_ASSIGN(ExpressionPtr next, expression(conditional));
    tuple->children.push_back(std::move(next));
  }
  return finish(std::move(tuple));
}

Result<ExpressionPtr> ExpressionParser::conditional_expression() {
  MILLRACE_ASSIGN(ExpressionPtr value, or_expression());
  while (state_.at_name("if")) {
    ExpressionPtr node = make(ExpressionKind::conditional);
    state_.advance();
    MILLRACE_ASSIGN(ExpressionPtr condition, or_expression());
    ExpressionPtr otherwise;
    if (state_.take_name("else")) {
      MILLRACE_ASSIGN(otherwise, expression());
    }
    node->children.push_back(std::move(value));
    node->children.push_back(std::move(condition));
    node->children.push_back(std::move(otherwise));
    MILLRACE_ASSIGN(value, finish(std::move(node)));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::chain(ExpressionKind kind, Part part,
                                              bool (*at_separator)(const Token&)) {
  ExpressionPtr node = make(kind);
  MILLRACE_ASSIGN(ExpressionPtr first, (this->*part)());
  if (!at_separator(state_.current())) return first;
  node->children.push_back(std::move(first));
  while (at_separator(state_.current())) {
    state_.advance();
    MILLRACE_ASSIGN(ExpressionPtr next, (this->*part)());
    node->children.push_back(std::move(next));
  }
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::left_associative(
    Part part, std::initializer_list<std::string_view> symbols) {
  MILLRACE_ASSIGN(ExpressionPtr left, (this->*part)());
  while (state_.at(TokenKind::symbol) &&
         std::find(symbols.begin(), symbols.end(), state_.current().text) != symbols.end()) {
    ExpressionPtr node = make(ExpressionKind::arithmetic);
    node->operators.push_back(arithmetic_operator(state_.current().text));
    state_.advance();
    MILLRACE_ASSIGN(ExpressionPtr right, (this->*part)());
    node->children.push_back(std::move(left));
    node->children.push_back(std::move(right));
    MILLRACE_ASSIGN(left, finish(std::move(node)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::or_expression() {
  return chain(ExpressionKind::or_, &ExpressionParser::and_expression, [](const Token& token) {
    return token.kind == TokenKind::name && token.text == "or";
  });
}

Result<ExpressionPtr> ExpressionParser::and_expression() {
  return chain(ExpressionKind::and_, &ExpressionParser::not_expression, [](const Token& token) {
    return token.kind == TokenKind::name && token.text == "and";
  });
}

Result<ExpressionPtr> ExpressionParser::not_expression() {
  if (!state_.at_name("not")) return comparison();
  ExpressionPtr node = make(ExpressionKind::not_);
  state_.advance();
  MILLRACE_TRY(state_.enter());
  auto operand = not_expression();
  state_.leave();
  if (!operand) return operand;
  node->children.push_back(std::move(*operand));
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::comparison() {
  ExpressionPtr node = make(ExpressionKind::compare);
  MILLRACE_ASSIGN(ExpressionPtr first, sum());
  node->children.push_back(std::move(first));
  while (true) {
    Operator found = Operator::equal;
    if (comparison_operator(state_.current(), found)) {
      state_.advance();
    } else if (state_.take_name("in")) {
      found = Operator::in;
    } else if (state_.at_name("not") && state_.following().kind == TokenKind::name &&
               state_.following().text == "in") {
      state_.advance();
      state_.advance();
      found = Operator::not_in;
    } else {
      break;
    }
    MILLRACE_ASSIGN(ExpressionPtr next, sum());
    node->operators.push_back(found);
    node->children.push_back(std::move(next));
  }
  if (node->operators.empty()) return std::move(node->children.front());
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::sum() {
  return left_associative(&ExpressionParser::concatenation, {"+", "-"});
}

Result<ExpressionPtr> ExpressionParser::concatenation() {
  return chain(ExpressionKind::concat, &ExpressionParser::product, [](const Token& token) {
    return token.kind == TokenKind::symbol && token.text == "~";
  });
}

Result<ExpressionPtr> ExpressionParser::product() {
  return left_associative(&ExpressionParser::power, {"*", "/", "//", "%"});
}

Result<ExpressionPtr> ExpressionParser::power() {
  return left_associative(&ExpressionParser::unary, {"**"});
}

Result<ExpressionPtr> ExpressionParser::signed_value(bool with_filters) {
  ExpressionPtr node;
  if (state_.at_symbol("-") || state_.at_symbol("+")) {
    ExpressionPtr sign =
        make(state_.at_symbol("-") ? ExpressionKind::negate : ExpressionKind::plus);
    state_.advance();
    MILLRACE_TRY(state_.enter());
    auto operand = signed_value(false);
    state_.leave();
    if (!operand) return operand;
    sign->children.push_back(std::move(*operand));
    MILLRACE_ASSIGN(node, finish(std::move(sign)));
  } else {
    MILLRACE_ASSIGN(node, primary());
  }
  MILLRACE_ASSIGN(node, after_value(std::move(node)));
  if (!with_filters) return node;
  return filters_and_tests(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::name_or_constant() {
  const std::string& name = state_.current().text;
  const auto constant = [&](Value value) {
    ExpressionPtr node = make(ExpressionKind::constant);
    node->constant = std::move(value);
    state_.advance();
    return node;
  };
  if (name == "true" || name == "True") return constant(true);
  if (name == "false" || name == "False") return constant(false);
  if (name == "none" || name == "None") return constant(Value::none());
  ExpressionPtr node = make(ExpressionKind::name);
  node->text = make_text(name);
  node->symbol = state_.symbol(name);
  node->builtin = find_global(name);
  state_.advance();
  return node;
}

Result<ExpressionPtr> ExpressionParser::primary() {
  if (state_.at(TokenKind::name)) return name_or_constant();
  if (state_.at_symbol("(")) return parenthesized();
  if (state_.at_symbol("[")) return list_literal();
  if (state_.at_symbol("{")) return dict_literal();
  ExpressionPtr node = make(ExpressionKind::constant);
  if (state_.at(TokenKind::string)) {
    std::string text;
    for (; state_.at(TokenKind::string); state_.advance()) text += state_.current().text;
    node->constant = make_text(text);
    return node;
  }
  if (state_.at(TokenKind::integer)) node->constant = state_.current().integer;
  else if (state_.at(TokenKind::floating)) node->constant = state_.current().floating;
  else return state_.unexpected("an expression");
  state_.advance();
  return node;
}

Result<ExpressionPtr> ExpressionParser::parenthesized() {
  ExpressionPtr empty = make(ExpressionKind::tuple);
  state_.advance();
  if (state_.take_symbol(")")) return finish(std::move(empty));
  MILLRACE_ASSIGN(ExpressionPtr inner, expression_or_tuple());
  MILLRACE_TRY(state_.expect_symbol(")"));
  return inner;
}

Result<ExpressionPtr> ExpressionParser::list_literal() {
  ExpressionPtr node = make(ExpressionKind::list);
  state_.advance();
  while (!state_.at_symbol("]")) {
    MILLRACE_ASSIGN(ExpressionPtr item, expression());
    node->children.push_back(std::move(item));
    if (!state_.take_symbol(",")) break;
  }
  MILLRACE_TRY(state_.expect_symbol("]"));
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::dict_literal() {
  ExpressionPtr node = make(ExpressionKind::dict);
  state_.advance();
  while (!state_.at_symbol("}")) {
    MILLRACE_ASSIGN(ExpressionPtr key, expression());
    MILLRACE_TRY(state_.expect_symbol(":"));
    MILLRACE_ASSIGN(ExpressionPtr value, expression());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
    if (!state_.take_symbol(",")) break;
  }
  MILLRACE_TRY(state_.expect_symbol("}"));
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::after_value(ExpressionPtr value) {
  while (true) {
    if (state_.at_symbol(".")) {
      MILLRACE_ASSIGN(value, attribute(std::move(value)));
    } else if (state_.at_symbol("[")) {
      MILLRACE_ASSIGN(value, subscript(std::move(value)));
    } else if (state_.at_symbol("(")) {
      ExpressionPtr call = make(ExpressionKind::call);
      call->children.push_back(std::move(value));
      MILLRACE_TRY(arguments(*call));
      MILLRACE_ASSIGN(value, finish(std::move(call)));
    } else {
      return value;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (state_.at_symbol("|")) {
      MILLRACE_ASSIGN(value, filter(std::move(value)));
    } else if (state_.at_name("is")) {
      MILLRACE_ASSIGN(value, test(std::move(value)));
    } else if (state_.at_symbol("(")) {
      MILLRACE_ASSIGN(value, after_value(std::move(value)));
    } else {
      return value;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::attribute(ExpressionPtr object) {
  state_.advance();
  ExpressionPtr node = make(ExpressionKind::attribute);
  node->children.push_back(std::move(object));
  if (state_.at(TokenKind::integer)) {  // x.0
    node->kind = ExpressionKind::item;
    MILLRACE_ASSIGN(ExpressionPtr index, primary());
    node->children.push_back(std::move(index));
    return finish(std::move(node));
  }
  if (!state_.at(TokenKind::name)) return state_.unexpected("the name of an attribute");
  node->text = make_text(state_.current().text);
  state_.advance();
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::subscript(ExpressionPtr object) {
  ExpressionPtr node = make(ExpressionKind::item);
  state_.advance();
  node->children.push_back(std::move(object));
  ExpressionPtr parts[3];
  std::size_t colons = 0;
  while (!state_.at_symbol("]")) {
    if (state_.at_symbol(":")) {
      if (++colons > 2) return state_.unexpected("]");
      state_.advance();
    } else if (parts[colons] == nullptr) {
      MILLRACE_ASSIGN(parts[colons], expression());
    } else {
      return state_.unexpected("]");
    }
  }
  if (colons == 0 && parts[0] == nullptr) return state_.unexpected("an index");
  state_.advance();
  if (colons != 0) node->kind = ExpressionKind::slice;
  const std::size_t count = colons == 0 ? 1 : 3;
  for (std::size_t i = 0; i < count; ++i) node->children.push_back(std::move(parts[i]));
  return finish(std::move(node));
}

Status ExpressionParser::arguments(Expression& call) {
  MILLRACE_TRY(state_.expect_symbol("("));
  while (!state_.at_symbol(")")) {
    if (state_.at_symbol("*") || state_.at_symbol("**"))
      return state_.error("* and ** in the arguments of a call are not supported");
    const Token next = state_.following();
    if (state_.at(TokenKind::name) && next.kind == TokenKind::symbol && next.text == "=") {
      std::string name = state_.current().text;
      state_.advance();
      state_.advance();
      MILLRACE_ASSIGN(ExpressionPtr value, expression());
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.keywords.empty())
        return state_.error("an argument without a name follows one with a name");
      MILLRACE_ASSIGN(ExpressionPtr value, expression());
      call.children.push_back(std::move(value));
    }
    if (!state_.take_symbol(",")) break;
  }
  return state_.expect_symbol(")");
}

Result<ExpressionPtr> ExpressionParser::filter(ExpressionPtr input) {
  MILLRACE_TRY(state_.expect_symbol("|"));
  ExpressionPtr node = make(ExpressionKind::filter);
  MILLRACE_ASSIGN(const std::string name, state_.take_any_name());
  node->text = make_text(name);
  node->builtin = find_filter(name);
  node->children.push_back(std::move(input));
  if (state_.at_symbol("(")) MILLRACE_TRY(arguments(*node));
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::test(ExpressionPtr input) {
  ExpressionPtr node = make(ExpressionKind::test);
  state_.advance();
  node->negated = state_.take_name("not");
  MILLRACE_ASSIGN(const std::string name, state_.take_any_name());
  node->text = make_text(name);
  node->builtin = find_test(name);
  node->children.push_back(std::move(input));
  const Token& next = state_.current();
  if (state_.at_symbol("(")) {
    MILLRACE_TRY(arguments(*node));
    return finish(std::move(node));
  }
  if (next.kind == TokenKind::name && next.text == "is")
    return state_.error("two tests in a row need parentheses");
  const bool bare_argument =
      next.kind == TokenKind::string || next.kind == TokenKind::integer ||
      next.kind == TokenKind::floating || state_.at_symbol("[") || state_.at_symbol("{") ||
      (next.kind == TokenKind::name && next.text != "else" && next.text != "or" &&
       next.text != "and" && next.text != "if" && next.text != "in" && next.text != "not");
  if (bare_argument) {
    MILLRACE_ASSIGN(ExpressionPtr argument, primary());
    MILLRACE_ASSIGN(argument, after_value(std::move(argument)));
    node->children.push_back(std::move(argument));
  }
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::block_filters() {
  ExpressionPtr value = make(ExpressionKind::block_text);
  do {
    ExpressionPtr node = make(ExpressionKind::filter);
    MILLRACE_ASSIGN(const std::string name, state_.take_any_name());
    node->text = make_text(name);
    node->builtin = find_filter(name);
    node->children.push_back(std::move(value));
    if (state_.at_symbol("(")) MILLRACE_TRY(arguments(*node));
    MILLRACE_ASSIGN(value, finish(std::move(node)));
  } while (state_.take_symbol("|"));
  return value;
}

}  // namespace millrace::jinja
