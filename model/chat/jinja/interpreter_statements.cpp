#include <fmt/format.h>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/interpreter.h"
#include "model/chat/jinja/printing.h"
#include "runtime/base/check.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace::jinja {

Interpreter::Interpreter(const Program& program, Heap& heap, const std::optional<Moment>& now)
    : program_(program), heap_(heap), now_(now) {
  scope_ = open_scope(nullptr);
}

void Interpreter::define(std::string_view name, Value value) {
  // A name that the template never uses has no number, and needs none.
  for (std::size_t i = 0; i < program_.symbols.size(); ++i)
    if (program_.symbols[i] == name) set(static_cast<Symbol>(i), std::move(value));
}

Result<TextRef> Interpreter::run() {
  TextBuilder out(budget());
  out_ = &out;
  MILLRACE_TRY(execute(program_.body));
  TextRef text = out.finish();
  if (budget().exhausted()) return Error{ErrorCode::format, budget().problem()};
  return text;
}

Error Interpreter::located(Error error, unsigned line) {
  if (located_) return error;
  located_ = true;
  error.what = fmt::format("line {}: {}", line, error.what);
  return error;
}

// scopes

Scope* Interpreter::open_scope(Scope* parent) {
  Scope* scope = nullptr;
  if (free_scopes_.empty()) {
    scopes_.push_back(std::make_unique<Scope>());
    scope = scopes_.back().get();
    constexpr std::size_t estimate = 256;
    budget().claim_bytes(sizeof(Scope) + estimate);
  } else {
    scope = free_scopes_.back();
    free_scopes_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void Interpreter::close_scope(Scope* scope) noexcept {
  if (scope->captured) return;
  clear_scope(scope);
  free_scopes_.push_back(scope);
}

void Interpreter::clear_scope(Scope* scope) noexcept {
  budget().release_bytes(scope->variables.size() * sizeof scope->variables[0]);
  scope->variables.clear();
}

void Interpreter::capture_scopes() noexcept {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent)
    scope->captured = true;
}

void Interpreter::set(Symbol symbol, Value value) {
  for (auto& [name, current] : scope_->variables) {
    if (name != symbol) continue;
    current = std::move(value);
    return;
  }
  budget().claim_bytes(sizeof scope_->variables[0]);
  scope_->variables.emplace_back(symbol, std::move(value));
}

const Value* Interpreter::find(Symbol symbol) const noexcept {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent)
    for (const auto& [name, value] : scope->variables)
      if (name == symbol) return &value;
  return nullptr;
}

// statements

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const auto& statement : body) {
    budget().work(1);
    if (++depth_ > limits::template_depth_max) {
      --depth_;
      return located({ErrorCode::format, "macros and blocks are nested too deeply"},
                     statement->line);
    }
    auto flow = execute(*statement);
    --depth_;
    if (!flow) return located(std::move(flow).error(), statement->line);
    if (budget().exhausted() || out_->overflowed()) {
      if (out_->overflowed()) budget().string_too_long();
      return located({ErrorCode::format, budget().problem()}, statement->line);
    }
    if (*flow != Flow::next) return flow;
  }
  return Flow::next;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::data:
      out_->append(*statement.text);
      budget().work_bytes(statement.text->size());
      break;
    case StatementKind::output:
      MILLRACE_TRY(output(statement));
      break;
    case StatementKind::if_:
      return execute_if(statement);
    case StatementKind::for_:
      return execute_for(statement);
    case StatementKind::set: {
      MILLRACE_ASSIGN(Value value, evaluate(*statement.expression));
      MILLRACE_TRY(assign(statement.target, std::move(value)));
      break;
    }
    case StatementKind::set_block:
      MILLRACE_TRY(execute_set_block(statement));
      break;
    case StatementKind::macro:
      define_macro(statement);
      break;
    case StatementKind::call_block:
      MILLRACE_TRY(execute_call_block(statement));
      break;
    case StatementKind::filter_block:
      MILLRACE_TRY(execute_filter_block(statement));
      break;
    case StatementKind::with:
      return execute_with(statement);
    case StatementKind::scoped:
      return execute_scoped(statement.body);
    case StatementKind::break_:
      return Flow::break_;
    case StatementKind::continue_:
      return Flow::continue_;
  }
  return Flow::next;
}

Status Interpreter::output(const Statement& statement) {
  MILLRACE_ASSIGN(const Value value, evaluate(*statement.expression));
  MILLRACE_ASSIGN(const TextRef text, to_text(value, budget()));
  budget().work_bytes(text->size());
  out_->append(*text);
  return {};
}

Result<Interpreter::Flow> Interpreter::execute_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    MILLRACE_ASSIGN(const Value condition, evaluate(*branch.condition));
    if (truthy(condition)) return execute(branch.body);
  }
  return execute(statement.otherwise);
}

// What the loop goes through, the `if` of the loop applied.
Result<std::vector<Value>> Interpreter::loop_items(const Statement& statement) {
  MILLRACE_ASSIGN(const Value list, evaluate(*statement.expression));
  MILLRACE_ASSIGN(std::vector<Value> items, items_of(list, heap_));
  if (statement.condition == nullptr) return items;
  std::vector<Value> kept;
  Scope* outer = scope_;
  Scope* inner = open_scope(outer);
  Status failed;
  for (Value& item : items) {
    clear_scope(inner);
    scope_ = inner;
    failed = assign(statement.target, item);
    if (!failed) break;
    auto wanted = evaluate(*statement.condition);
    if (!wanted) failed = std::move(wanted).error();
    if (!failed) break;
    if (truthy(*wanted)) kept.push_back(std::move(item));
  }
  scope_ = outer;
  close_scope(inner);
  if (!failed) return failed.error();
  return kept;
}

Result<Interpreter::Flow> Interpreter::execute_for(const Statement& statement) {
  MILLRACE_ASSIGN(std::vector<Value> items, loop_items(statement));
  if (items.empty()) return execute(statement.otherwise);
  Loop* loop = heap_.loop(std::move(items), loop_depth_++);
  Scope* outer = scope_;
  Scope* inner = open_scope(outer);
  Result<Flow> flow = Flow::next;
  bool completed = false;
  for (; loop->index < loop->items.size(); ++loop->index) {
    budget().work(1);
    clear_scope(inner);
    scope_ = inner;
    set(loop_symbol, loop);
    if (Status assigned = assign(statement.target, loop->items[loop->index]); !assigned)
      flow = std::move(assigned).error();
    else flow = execute(statement.body);
    if (!flow || *flow == Flow::break_) break;
    completed |= *flow == Flow::next;
  }
  scope_ = outer;
  close_scope(inner);
  --loop_depth_;
  if (!flow) return flow;
  // As in Jinja, `else` is for loops of which no round came to its end.
  return completed ? Result<Flow>(Flow::next) : execute(statement.otherwise);
}

Result<Interpreter::Flow> Interpreter::execute_scoped(const Body& body) {
  Scope* outer = scope_;
  Scope* inner = open_scope(outer);
  scope_ = inner;
  auto flow = execute(body);
  scope_ = outer;
  close_scope(inner);
  return flow;
}

Result<TextRef> Interpreter::captured(const Body& body) {
  TextBuilder out(budget());
  TextBuilder* outer = std::exchange(out_, &out);
  auto flow = execute_scoped(body);
  out_ = outer;
  if (!flow) return std::move(flow).error();
  return out.finish();
}

Status Interpreter::execute_set_block(const Statement& statement) {
  MILLRACE_ASSIGN(const TextRef text, captured(statement.body));
  if (statement.expression == nullptr) return assign(statement.target, text);
  const TextRef outer = std::exchange(block_text_, text);
  auto filtered = evaluate(*statement.expression);
  block_text_ = outer;
  if (!filtered) return std::move(filtered).error();
  return assign(statement.target, std::move(*filtered));
}

Status Interpreter::execute_filter_block(const Statement& statement) {
  MILLRACE_ASSIGN(const TextRef text, captured(statement.body));
  const TextRef outer = std::exchange(block_text_, text);
  auto filtered = evaluate(*statement.expression);
  block_text_ = outer;
  if (!filtered) return std::move(filtered).error();
  MILLRACE_ASSIGN(const TextRef shown, to_text(*filtered, budget()));
  out_->append(*shown);
  return {};
}

Result<Interpreter::Flow> Interpreter::execute_with(const Statement& statement) {
  std::vector<Value> values;  // all of them see the variables from outside
  for (const auto& [target, expression] : statement.assignments) {
    MILLRACE_ASSIGN(Value value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  Scope* outer = scope_;
  Scope* inner = open_scope(outer);
  scope_ = inner;
  Status assigned;
  for (std::size_t i = 0; i < values.size() && assigned; ++i)
    assigned = assign(statement.assignments[i].first, std::move(values[i]));
  Result<Flow> flow = Flow::next;
  if (assigned) flow = execute(statement.body);
  else flow = std::move(assigned).error();
  scope_ = outer;
  close_scope(inner);
  return flow;
}

Status Interpreter::assign(const Target& target, Value value) {
  if (target.attribute != nullptr) {
    const Value* owner = find(target.symbols[0]);
    if (owner == nullptr || !owner->is(Kind::name_space))
      return Error{ErrorCode::format,
                   fmt::format("'{}' is no namespace, so its attributes cannot be set",
                               printable(target.name->view(), 60))};
    Dict& attributes = owner->as_namespace()->attributes;
    heap_.set(attributes, target.attribute, std::move(value));
    return {};
  }
  if (!target.unpacks) {
    set(target.symbols[0], std::move(value));
    return {};
  }
  if (value.is_undefined()) return Error{ErrorCode::format, undefined_message(value)};
  MILLRACE_ASSIGN(std::vector<Value> parts, items_of(value, heap_));
  if (parts.size() != target.symbols.size())
    return Error{ErrorCode::format, fmt::format("{} values cannot be unpacked into {} names",
                                                parts.size(), target.symbols.size())};
  for (std::size_t i = 0; i < parts.size(); ++i) set(target.symbols[i], std::move(parts[i]));
  return {};
}

// macros

void Interpreter::define_macro(const Statement& statement) {
  capture_scopes();
  Callable made;
  made.macro = &statement;
  made.scope = scope_;
  set(statement.symbol, heap_.callable(std::move(made)));
}

Status Interpreter::execute_call_block(const Statement& statement) {
  capture_scopes();
  Callable body;
  body.macro = &statement;
  body.scope = scope_;
  const Value caller = heap_.callable(std::move(body));
  MILLRACE_ASSIGN(const Value value, evaluate_call(*statement.expression, &caller));
  MILLRACE_ASSIGN(const TextRef text, to_text(value, budget()));
  out_->append(*text);
  return {};
}

// In the macro's scope, which is open; defaults see the parameters before them.
Status Interpreter::bind_parameters(const Statement& macro, std::vector<Value>& positional,
                                    Keywords& keywords) {
  const std::string name = printable(macro.name->view(), 60);
  if (positional.size() > macro.parameters.size())
    return Error{ErrorCode::format, fmt::format("macro '{}' takes {} arguments, not {}", name,
                                                macro.parameters.size(), positional.size())};
  for (auto& [keyword, value] : keywords) {
    std::size_t at = 0;
    while (at < macro.parameters.size() && macro.parameters[at].name->view() != keyword) ++at;
    if (at < positional.size())
      return Error{ErrorCode::format,
                   fmt::format("macro '{}' got two values for '{}'", name, printable(keyword, 60))};
    if (at == macro.parameters.size() && keyword != "caller")
      return Error{ErrorCode::format,
                   fmt::format("macro '{}' has no parameter '{}'", name, printable(keyword, 60))};
    set(at == macro.parameters.size() ? caller_symbol : macro.parameters[at].symbol,
        std::move(value));
  }
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (i < positional.size()) {
      set(parameter.symbol, std::move(positional[i]));
      continue;
    }
    bool given = false;
    for (const auto& entry : scope_->variables) given |= entry.first == parameter.symbol;
    if (given) continue;
    if (parameter.fallback == nullptr) {
      set(parameter.symbol, Value::undefined(parameter.name));
      continue;
    }
    MILLRACE_ASSIGN(Value value, evaluate(*parameter.fallback));
    set(parameter.symbol, std::move(value));
  }
  return {};
}

ValueResult Interpreter::call_macro(const Callable& macro, std::vector<Value> positional,
                                    Keywords keywords) {
  Scope* outer_scope = scope_;
  Scope* inner = open_scope(macro.scope);
  scope_ = inner;
  TextBuilder out(budget());
  TextBuilder* outer_out = std::exchange(out_, &out);
  const std::size_t outer_loops = std::exchange(loop_depth_, 0);
  Status failed = bind_parameters(*macro.macro, positional, keywords);
  if (failed) {
    auto flow = execute(macro.macro->body);
    if (!flow) failed = std::move(flow).error();
  }
  loop_depth_ = outer_loops;
  out_ = outer_out;
  scope_ = outer_scope;
  close_scope(inner);
  if (!failed) return failed.error();
  return Value(out.finish());
}

}  // namespace millrace::jinja
