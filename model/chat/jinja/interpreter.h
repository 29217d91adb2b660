// Runs a program: statements in interpreter_statements.cpp, expressions in
// interpreter_expressions.cpp. One rendering, one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/jinja/callable.h"
#include "model/chat/jinja/statement.h"
#include "model/chat/jinja/template.h"
#include "model/chat/jinja/value.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

// Variables of a block, seen from the blocks inside it.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> variables;
  bool captured = false;  // a macro refers to it: it lives as long as the rendering
};

using Keywords = std::vector<std::pair<std::string, Value>>;

class Interpreter {
 public:
  // All of them must outlive the interpreter.
  Interpreter(const Program& program, Heap& heap, const std::optional<Moment>& now);

  // A variable of the whole template.
  void define(std::string_view name, Value value);
  Result<TextRef> run();

  // For the functions of the language.
  Heap& heap() noexcept { return heap_; }
  Budget& budget() noexcept { return heap_.budget(); }
  const std::optional<Moment>& now() const noexcept { return now_; }
  ValueResult call(const Value& callee, std::vector<Value> positional, Keywords keywords);
  // Filters and tests by name, as map and select need them.
  ValueResult apply_filter(std::string_view name, Value input, std::vector<Value> positional,
                           Keywords keywords);
  Result<bool> apply_test(std::string_view name, Value input, std::vector<Value> positional);

 private:
  enum class Flow : std::uint8_t { next, break_, continue_ };

  // statements
  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Statement& statement);
  Status output(const Statement& statement);
  Result<Flow> execute_if(const Statement& statement);
  Result<Flow> execute_for(const Statement& statement);
  Result<std::vector<Value>> loop_items(const Statement& statement);
  Status execute_set_block(const Statement& statement);
  Status execute_call_block(const Statement& statement);
  Status execute_filter_block(const Statement& statement);
  Result<Flow> execute_with(const Statement& statement);
  Result<Flow> execute_scoped(const Body& body);
  void define_macro(const Statement& statement);
  Status assign(const Target& target, Value value);
  // The text that a body writes, in a scope of its own.
  Result<TextRef> captured(const Body& body);
  ValueResult call_macro(const Callable& macro, std::vector<Value> positional, Keywords keywords);
  Status bind_parameters(const Statement& macro, std::vector<Value>& positional,
                         Keywords& keywords);

  // expressions
  ValueResult evaluate(const Expression& expression);
  ValueResult evaluate_kind(const Expression& expression);
  ValueResult evaluate_name(const Expression& expression);
  ValueResult evaluate_list(const Expression& expression, SequenceKind kind);
  ValueResult evaluate_dict(const Expression& expression);
  ValueResult evaluate_slice(const Expression& expression);
  ValueResult evaluate_sign(const Expression& expression);
  ValueResult evaluate_logic(const Expression& expression);
  ValueResult evaluate_concat(const Expression& expression);
  ValueResult evaluate_compare(const Expression& expression);
  ValueResult evaluate_conditional(const Expression& expression);
  ValueResult evaluate_call(const Expression& expression, const Value* caller);
  ValueResult evaluate_filter(const Expression& expression);
  ValueResult evaluate_test(const Expression& expression);
  Status evaluate_arguments(const Expression& call, std::vector<Value>& positional,
                            Keywords& keywords);
  ValueResult invoke(const Builtin& builtin, Value self, std::vector<Value> positional,
                     Keywords keywords);

  // scopes
  void set(Symbol symbol, Value value);
  const Value* find(Symbol symbol) const noexcept;
  Scope* open_scope(Scope* parent);
  void close_scope(Scope* scope) noexcept;
  void clear_scope(Scope* scope) noexcept;
  void capture_scopes() noexcept;

  // Errors get the line of the innermost place that they passed through.
  Error located(Error error, unsigned line);

  const Program& program_;
  Heap& heap_;
  const std::optional<Moment>& now_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  TextBuilder* out_ = nullptr;
  TextRef block_text_;  // of the block whose filters are applied
  unsigned depth_ = 0;
  std::size_t loop_depth_ = 0;
  bool located_ = false;
};

}  // namespace millrace::jinja
