#include <fmt/format.h>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/interpreter.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/printing.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace::jinja {

ValueResult Interpreter::evaluate(const Expression& expression) {
  budget().work(1);
  if (++depth_ > limits::template_depth_max) {
    --depth_;
    return located({ErrorCode::format, "macros and expressions are nested too deeply"},
                   expression.line);
  }
  auto value = evaluate_kind(expression);
  --depth_;
  if (!value) return located(std::move(value).error(), expression.line);
  if (budget().exhausted())
    return located({ErrorCode::format, budget().problem()}, expression.line);
  return value;
}

ValueResult Interpreter::evaluate_kind(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::constant:
      return expression.constant;
    case ExpressionKind::name:
      return evaluate_name(expression);
    case ExpressionKind::list:
      return evaluate_list(expression, SequenceKind::list);
    case ExpressionKind::tuple:
      return evaluate_list(expression, SequenceKind::tuple);
    case ExpressionKind::dict:
      return evaluate_dict(expression);
    case ExpressionKind::attribute: {
      MILLRACE_ASSIGN(const Value object, evaluate(*expression.children[0]));
      return attribute_of(object, expression.text, heap_);
    }
    case ExpressionKind::item: {
      MILLRACE_ASSIGN(const Value object, evaluate(*expression.children[0]));
      MILLRACE_ASSIGN(const Value index, evaluate(*expression.children[1]));
      return item_of(object, index, heap_);
    }
    case ExpressionKind::slice:
      return evaluate_slice(expression);
    case ExpressionKind::call:
      return evaluate_call(expression, nullptr);
    case ExpressionKind::filter:
      return evaluate_filter(expression);
    case ExpressionKind::test:
      return evaluate_test(expression);
    case ExpressionKind::block_text:
      return Value(block_text_);
    case ExpressionKind::negate:
    case ExpressionKind::plus:
      return evaluate_sign(expression);
    case ExpressionKind::not_: {
      MILLRACE_ASSIGN(const Value operand, evaluate(*expression.children[0]));
      return !truthy(operand);
    }
    case ExpressionKind::and_:
    case ExpressionKind::or_:
      return evaluate_logic(expression);
    case ExpressionKind::concat:
      return evaluate_concat(expression);
    case ExpressionKind::arithmetic: {
      MILLRACE_ASSIGN(const Value left, evaluate(*expression.children[0]));
      MILLRACE_ASSIGN(const Value right, evaluate(*expression.children[1]));
      return arithmetic(expression.operators[0], left, right, heap_);
    }
    case ExpressionKind::compare:
      return evaluate_compare(expression);
    case ExpressionKind::conditional:
      return evaluate_conditional(expression);
  }
  return Value();
}

ValueResult Interpreter::evaluate_name(const Expression& expression) {
  if (const Value* found = find(expression.symbol); found != nullptr) return *found;
  if (expression.builtin != nullptr) {
    const bool without_clock = !now_ && expression.text->view() == "strftime_now";
    if (!without_clock) {
      Callable callable;
      callable.builtin = expression.builtin;
      return heap_.callable(std::move(callable));
    }
  }
  return Value::undefined(expression.text);
}

ValueResult Interpreter::evaluate_list(const Expression& expression, SequenceKind kind) {
  std::vector<Value> items;
  items.reserve(expression.children.size());
  for (const ExpressionPtr& child : expression.children) {
    MILLRACE_ASSIGN(Value item, evaluate(*child));
    items.push_back(std::move(item));
  }
  return heap_.sequence(kind, std::move(items));
}

ValueResult Interpreter::evaluate_dict(const Expression& expression) {
  Dict* dict = heap_.dict();
  for (std::size_t i = 0; i + 1 < expression.children.size(); i += 2) {
    MILLRACE_ASSIGN(const Value key, evaluate(*expression.children[i]));
    MILLRACE_ASSIGN(Value value, evaluate(*expression.children[i + 1]));
    if (!Dict::can_be_key(key))
      return Error{ErrorCode::format,
                   fmt::format("a value of type {} cannot be a key", type_name(key))};
    heap_.set(*dict, key, std::move(value));
  }
  return dict;
}

ValueResult Interpreter::evaluate_slice(const Expression& expression) {
  MILLRACE_ASSIGN(const Value object, evaluate(*expression.children[0]));
  std::optional<std::int64_t> parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const ExpressionPtr& part = expression.children[i + 1];
    if (part == nullptr) continue;
    MILLRACE_ASSIGN(const Value value, evaluate(*part));
    std::int64_t number = 0;
    if (value.get_integer(number)) parts[i] = number;
    else if (!value.is_none())
      return Error{ErrorCode::format,
                   fmt::format("a slice needs integers, not a value of type {}", type_name(value))};
  }
  return slice_of(object, {parts[0], parts[1], parts[2]}, heap_);
}

ValueResult Interpreter::evaluate_sign(const Expression& expression) {
  MILLRACE_ASSIGN(const Value operand, evaluate(*expression.children[0]));
  const bool negate = expression.kind == ExpressionKind::negate;
  if (operand.is(Kind::floating)) return negate ? Value(-operand.as_floating()) : operand;
  return arithmetic(negate ? Operator::subtract : Operator::add, Value(std::int64_t{0}), operand,
                    heap_);
}

ValueResult Interpreter::evaluate_logic(const Expression& expression) {
  const bool stops_at = expression.kind == ExpressionKind::or_;
  Value value;
  for (const ExpressionPtr& child : expression.children) {
    MILLRACE_ASSIGN(value, evaluate(*child));
    if (truthy(value) == stops_at) break;
  }
  return value;
}

ValueResult Interpreter::evaluate_concat(const Expression& expression) {
  TextBuilder out(budget());
  for (const ExpressionPtr& child : expression.children) {
    MILLRACE_ASSIGN(const Value value, evaluate(*child));
    MILLRACE_ASSIGN(const TextRef text, to_text(value, budget()));
    out.append(*text);
  }
  return out.finish();
}

ValueResult Interpreter::evaluate_compare(const Expression& expression) {
  MILLRACE_ASSIGN(Value left, evaluate(*expression.children[0]));
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    MILLRACE_ASSIGN(Value right, evaluate(*expression.children[i + 1]));
    MILLRACE_ASSIGN(const bool holds, compare(expression.operators[i], left, right, heap_));
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

ValueResult Interpreter::evaluate_conditional(const Expression& expression) {
  MILLRACE_ASSIGN(const Value condition, evaluate(*expression.children[1]));
  if (truthy(condition)) return evaluate(*expression.children[0]);
  if (expression.children[2] == nullptr) return Value();
  return evaluate(*expression.children[2]);
}

// calls

Status Interpreter::evaluate_arguments(const Expression& call, std::vector<Value>& positional,
                                       Keywords& keywords) {
  for (std::size_t i = 1; i < call.children.size(); ++i) {
    MILLRACE_ASSIGN(Value value, evaluate(*call.children[i]));
    positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : call.keywords) {
    MILLRACE_ASSIGN(Value value, evaluate(*argument));
    keywords.emplace_back(name, std::move(value));
  }
  return {};
}

ValueResult Interpreter::evaluate_call(const Expression& expression, const Value* caller) {
  const Expression& callee = *expression.children[0];
  std::vector<Value> positional;
  Keywords keywords;
  MILLRACE_ASSIGN(const Value callable, evaluate(callee));
  MILLRACE_TRY(evaluate_arguments(expression, positional, keywords));
  if (caller != nullptr) keywords.emplace_back("caller", *caller);
  return call(callable, std::move(positional), std::move(keywords));
}

ValueResult Interpreter::call(const Value& callee, std::vector<Value> positional,
                              Keywords keywords) {
  if (callee.is_undefined()) return Error{ErrorCode::format, undefined_message(callee)};
  if (!callee.is(Kind::callable))
    return Error{ErrorCode::format,
                 fmt::format("a value of type {} cannot be called", type_name(callee))};
  const Callable& callable = *callee.as_callable();
  if (callable.macro != nullptr)
    return call_macro(callable, std::move(positional), std::move(keywords));
  return invoke(*callable.builtin, callable.self, std::move(positional), std::move(keywords));
}

ValueResult Interpreter::invoke(const Builtin& builtin, Value self, std::vector<Value> positional,
                                Keywords keywords) {
  Arguments arguments(*this, builtin.name, std::move(self), std::move(positional),
                      std::move(keywords));
  return builtin.function(arguments);
}

ValueResult Interpreter::evaluate_filter(const Expression& expression) {
  MILLRACE_ASSIGN(Value input, evaluate(*expression.children[0]));
  if (expression.builtin == nullptr)
    return Error{ErrorCode::format,
                 fmt::format("unknown filter '{}'", printable(expression.text->view(), 60))};
  std::vector<Value> positional;
  Keywords keywords;
  MILLRACE_TRY(evaluate_arguments(expression, positional, keywords));
  return invoke(*expression.builtin, std::move(input), std::move(positional), std::move(keywords));
}

ValueResult Interpreter::evaluate_test(const Expression& expression) {
  MILLRACE_ASSIGN(Value input, evaluate(*expression.children[0]));
  if (expression.builtin == nullptr)
    return Error{ErrorCode::format,
                 fmt::format("unknown test '{}'", printable(expression.text->view(), 60))};
  std::vector<Value> positional;
  Keywords keywords;
  MILLRACE_TRY(evaluate_arguments(expression, positional, keywords));
  MILLRACE_ASSIGN(const Value outcome, invoke(*expression.builtin, std::move(input),
                                              std::move(positional), std::move(keywords)));
  return truthy(outcome) != expression.negated;
}

ValueResult Interpreter::apply_filter(std::string_view name, Value input,
                                      std::vector<Value> positional, Keywords keywords) {
  const Builtin* builtin = find_filter(name);
  if (builtin == nullptr)
    return Error{ErrorCode::format, fmt::format("unknown filter '{}'", printable(name, 60))};
  budget().work(1);
  return invoke(*builtin, std::move(input), std::move(positional), std::move(keywords));
}

Result<bool> Interpreter::apply_test(std::string_view name, Value input,
                                     std::vector<Value> positional) {
  const Builtin* builtin = find_test(name);
  if (builtin == nullptr)
    return Error{ErrorCode::format, fmt::format("unknown test '{}'", printable(name, 60))};
  budget().work(1);
  MILLRACE_ASSIGN(const Value outcome,
                  invoke(*builtin, std::move(input), std::move(positional), {}));
  return truthy(outcome);
}

}  // namespace millrace::jinja
