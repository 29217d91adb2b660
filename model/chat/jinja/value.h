// Values of the template language, with Python's rules for truth, equality, order and printing.
// Lists, dicts and the like belong to the Heap of one rendering and go with it, so that cycles (a
// list that holds itself) leak nothing; values only point to them. One rendering, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "model/chat/jinja/budget.h"
#include "model/chat/jinja/text.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

struct Sequence;
class Dict;
struct Namespace;
struct Loop;
struct Callable;

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  floating,
  string,
  sequence,
  dict,
  name_space,
  loop,
  callable,
};

// The value of a name or attribute that does not exist: prints as nothing, is false, and most uses
// of it are errors that say what was missing.
struct Undefined {
  TextRef name;                 // null: no more is known
  const char* owner = nullptr;  // type of the object that has no such attribute; null: a variable
};

class Value {
 public:
  Value() = default;  // undefined
  Value(bool value) : state_(value) {}
  Value(const char*) = delete;  // would be a boolean
  Value(std::int64_t value) : state_(value) {}
  Value(double value) : state_(value) {}
  Value(TextRef value) : state_(std::move(value)) {}
  Value(Sequence* value) : state_(value) {}
  Value(Dict* value) : state_(value) {}
  Value(Namespace* value) : state_(value) {}
  Value(Loop* value) : state_(value) {}
  Value(const Callable* value) : state_(value) {}
  static Value none() {
    Value made;
    made.state_ = None{};
    return made;
  }
  static Value undefined(TextRef name, const char* owner = nullptr) {
    Value made;
    made.state_ = Undefined{std::move(name), owner};
    return made;
  }

  Kind kind() const noexcept { return static_cast<Kind>(state_.index()); }
  bool is(Kind kind_asked) const noexcept { return kind() == kind_asked; }
  bool is_undefined() const noexcept { return is(Kind::undefined); }
  bool is_none() const noexcept { return is(Kind::none); }
  bool is_string() const noexcept { return is(Kind::string); }
  bool is_number() const noexcept;  // booleans too, as in Python

  // Each only for its own kind.
  bool as_boolean() const { return *std::get_if<bool>(&state_); }
  std::int64_t as_integer() const { return *std::get_if<std::int64_t>(&state_); }
  double as_floating() const { return *std::get_if<double>(&state_); }
  const TextRef& as_text() const { return *std::get_if<TextRef>(&state_); }
  std::string_view view() const { return as_text()->view(); }
  Sequence* as_sequence() const { return *std::get_if<Sequence*>(&state_); }
  Dict* as_dict() const { return *std::get_if<Dict*>(&state_); }
  Namespace* as_namespace() const { return *std::get_if<Namespace*>(&state_); }
  Loop* as_loop() const { return *std::get_if<Loop*>(&state_); }
  const Callable* as_callable() const { return *std::get_if<const Callable*>(&state_); }
  const Undefined& as_undefined() const { return *std::get_if<Undefined>(&state_); }

  // Booleans and integers; false if it is neither.
  bool get_integer(std::int64_t& out) const noexcept;
  // Any number; false if it is none.
  bool get_number(double& out) const noexcept;

 private:
  struct None {};
  std::variant<Undefined, None, bool, std::int64_t, double, TextRef, Sequence*, Dict*, Namespace*,
               Loop*, const Callable*>
      state_;
};

// Result<Value> that is also made from whatever a value is made from.
class [[nodiscard]] ValueResult : public Result<Value> {
 public:
  using Result<Value>::Result;
  template <class T>
  requires(std::is_convertible_v<T&&, Value> && !std::is_same_v<std::decay_t<T>, Value>)
      ValueResult(T&& value)
      : Result<Value>(Value(std::forward<T>(value))) {}  // NOLINT: on purpose
};

enum class SequenceKind : std::uint8_t {
  list,
  tuple,
  range,
  // What filters like map give: true, without a length, and empty once it was walked through.
  generator,
  // keys(), values(), items(): has a length, cannot be indexed.
  view,
};

struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  bool indexable() const noexcept {
    return kind != SequenceKind::generator && kind != SequenceKind::view;
  }
};

// Insertion-ordered. Keys: strings, numbers, booleans, none (1, 1.0 and true are one key).
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  static bool can_be_key(const Value& key) noexcept;

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  std::size_t size() const noexcept { return entries_.size(); }
  // Null if absent or no possible key.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // `key` must be a possible one.
  void set(const Value& key, Value value);
  bool erase(const Value& key);

 private:
  static std::string hashed_form(const Value& key);
  std::size_t position(const std::string& hashed) const;

  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
};

struct Namespace {
  Dict attributes;
};

// The variable `loop` of a `for`.
struct Loop {
  std::vector<Value> items;
  std::size_t index = 0;                           // from 0
  std::size_t depth = 0;                           // from 0
  std::optional<std::vector<Value>> last_changed;  // arguments of loop.changed()
};

// Owns every container of one rendering.
class Heap {
 public:
  explicit Heap(Budget& budget) : budget_(budget) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Budget& budget() noexcept { return budget_; }
  Sequence* sequence(SequenceKind kind, std::vector<Value> items);
  Dict* dict();
  Namespace* name_space();
  Loop* loop(std::vector<Value> items, std::size_t depth);
  const Callable* callable(Callable made);
  // These also count what the container grows by.
  void push(Sequence& sequence, Value value);
  void set(Dict& dict, const Value& key, Value value);

  TextRef text(std::string_view bytes, bool foreign = false);
  Value string(std::string_view bytes) { return text(bytes); }

 private:
  struct Owned {
    virtual ~Owned() = default;
  };
  template <class T>
  struct Holder final : Owned {
    explicit Holder(T made) : object(std::move(made)) {}
    T object;
  };
  template <class T>
  T* own(T made);

  Budget& budget_;
  std::vector<std::unique_ptr<Owned>> owned_;
};

// Python's name of the type, for messages: "str", "NoneType", "list".
const char* type_name(const Value& value) noexcept;
bool truthy(const Value& value) noexcept;
// "'x' is undefined"; what came from a file is made printable.
std::string undefined_message(const Value& value);

// ==. Containers that are nested too deeply are unequal; the work is counted.
bool equal(const Value& a, const Value& b, Budget& budget, unsigned depth = 0);
// <. An error if the two have no order.
Result<bool> less(const Value& a, const Value& b, Budget& budget, unsigned depth = 0);

}  // namespace millrace::jinja
