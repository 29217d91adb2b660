// What templates can call: macros, and functions of the language (globals, methods, filters, tests
// share one form).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/jinja/value.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

class Interpreter;
struct Statement;
struct Scope;

// The arguments of one call.
class Arguments {
 public:
  Arguments(Interpreter& running, const char* called, Value object, std::vector<Value> values,
            std::vector<std::pair<std::string, Value>> named)
      : interpreter(running),
        name(called),
        self(std::move(object)),
        positional(std::move(values)),
        keywords(std::move(named)) {}

  Interpreter& interpreter;
  const char* name;  // of what is called, for messages
  Value self;        // what a filter or test is applied to, or the object of a method
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  Heap& heap() const noexcept;
  Budget& budget() const noexcept { return heap().budget(); }

  // The arguments by name, in the order of `names`; those not given stay undefined (see given()).
  // An error if there are too many, unknown ones, or fewer than `required`.
  Status bind(std::initializer_list<const char*> names, std::size_t required = 0);
  bool given(std::size_t index) const noexcept { return given_.size() > index && given_[index]; }
  const Value& operator[](std::size_t index) const { return bound_[index]; }
  // `fallback` if it was not given; an error that names the argument if it is of another kind.
  Result<std::int64_t> integer(std::size_t index, std::int64_t fallback) const;
  Result<TextRef> text(std::size_t index, std::string_view fallback) const;
  bool boolean(std::size_t index, bool fallback) const noexcept;

  // "name: message" as an error.
  Error error(std::string message) const;

 private:
  std::vector<const char*> names_;
  std::vector<Value> bound_;
  std::vector<bool> given_;
};

using Function = ValueResult (*)(Arguments& call);

struct Builtin {
  const char* name;
  Function function;
};

// Null if there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_global(std::string_view name);
// Methods by the kind of their object.
const Builtin* find_method(const Value& object, std::string_view name);

// Either a macro with the scope it was defined in, or a function, maybe with its object.
struct Callable {
  const Builtin* builtin = nullptr;
  Value self;
  const Statement* macro = nullptr;
  Scope* scope = nullptr;
};

}  // namespace millrace::jinja
