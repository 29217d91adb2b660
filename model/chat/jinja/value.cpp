#include "model/chat/jinja/value.h"

#include <fmt/format.h>

#include <cmath>

#include "model/chat/jinja/callable.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace::jinja {

bool Value::is_number() const noexcept {
  return is(Kind::boolean) || is(Kind::integer) || is(Kind::floating);
}

bool Value::get_integer(std::int64_t& out) const noexcept {
  if (is(Kind::boolean)) out = as_boolean() ? 1 : 0;
  else if (is(Kind::integer)) out = as_integer();
  else return false;
  return true;
}

bool Value::get_number(double& out) const noexcept {
  std::int64_t integer = 0;
  if (is(Kind::floating)) out = as_floating();
  else if (get_integer(integer)) out = static_cast<double>(integer);
  else return false;
  return true;
}

// dicts

bool Dict::can_be_key(const Value& key) noexcept {
  return key.is_string() || key.is_none() || key.is_number();
}

std::string Dict::hashed_form(const Value& key) {
  if (key.is_string()) return "s" + key.as_text()->bytes();
  if (key.is_none()) return "n";
  std::int64_t integer = 0;
  if (key.get_integer(integer)) return fmt::format("i{}", integer);
  const double number = key.as_floating();
  if (std::trunc(number) == number && std::fabs(number) < 9.0e18)
    return fmt::format("i{}", static_cast<std::int64_t>(number));
  return fmt::format("f{}", number);
}

std::size_t Dict::position(const std::string& hashed) const {
  const auto found = index_.find(hashed);
  return found == index_.end() ? entries_.size() : found->second;
}

const Value* Dict::find(const Value& key) const {
  if (!can_be_key(key)) return nullptr;
  if (key.is_string()) return find(key.view());
  const std::size_t at = position(hashed_form(key));
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

const Value* Dict::find(std::string_view key) const {
  constexpr std::size_t few = 8;  // looked through faster than hashed
  if (entries_.size() <= few) {
    for (const auto& [name, value] : entries_)
      if (name.is_string() && name.view() == key) return &value;
    return nullptr;
  }
  const std::size_t at = position("s" + std::string(key));
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

void Dict::set(const Value& key, Value value) {
  const std::string hashed = hashed_form(key);
  const std::size_t at = position(hashed);
  if (at < entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  index_.emplace(hashed, entries_.size());
  entries_.emplace_back(key, std::move(value));
}

bool Dict::erase(const Value& key) {
  const std::string hashed = hashed_form(key);
  const std::size_t at = position(hashed);
  if (at == entries_.size()) return false;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  index_.erase(hashed);
  for (auto& [name, place] : index_)
    if (place > at) --place;
  return true;
}

// the heap

template <class T>
T* Heap::own(T made) {
  auto holder = std::make_unique<Holder<T>>(std::move(made));
  T* object = &holder->object;
  budget_.claim_bytes(sizeof(Holder<T>) + sizeof(void*));
  owned_.push_back(std::move(holder));
  return object;
}

Sequence* Heap::sequence(SequenceKind kind, std::vector<Value> items) {
  budget_.claim_bytes(items.size() * sizeof(Value));
  budget_.work(items.size());
  return own(Sequence{kind, std::move(items)});
}

Dict* Heap::dict() { return own(Dict{}); }
Namespace* Heap::name_space() { return own(Namespace{}); }
const Callable* Heap::callable(Callable made) { return own(std::move(made)); }

Loop* Heap::loop(std::vector<Value> items, std::size_t depth) {
  budget_.claim_bytes(items.size() * sizeof(Value));
  Loop made;
  made.items = std::move(items);
  made.depth = depth;
  return own(std::move(made));
}

void Heap::push(Sequence& sequence, Value value) {
  budget_.claim_bytes(sizeof(Value));
  sequence.items.push_back(std::move(value));
}

void Heap::set(Dict& dict, const Value& key, Value value) {
  const std::size_t key_bytes = key.is_string() ? key.as_text()->size() : 0;
  budget_.work_bytes(key_bytes);
  const std::size_t before = dict.size();
  dict.set(key, std::move(value));
  if (dict.size() > before) budget_.claim_bytes(sizeof(Dict::Entry) + 96 + key_bytes);
}

TextRef Heap::text(std::string_view bytes, bool foreign) {
  TextBuilder builder(budget_);
  builder.append(bytes, foreign);
  return builder.finish();
}

// what Python says of them

const char* type_name(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::floating:
      return "float";
    case Kind::string:
      return "str";
    case Kind::dict:
      return "dict";
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::callable:
      return "function";
    case Kind::sequence:
      break;
  }
  switch (value.as_sequence()->kind) {
    case SequenceKind::list:
      return "list";
    case SequenceKind::tuple:
      return "tuple";
    case SequenceKind::range:
      return "range";
    case SequenceKind::generator:
      return "generator";
    case SequenceKind::view:
      return "dict view";
  }
  return "object";
}

bool truthy(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.as_boolean();
    case Kind::integer:
      return value.as_integer() != 0;
    case Kind::floating:
      return value.as_floating() != 0;
    case Kind::string:
      return !value.as_text()->empty();
    case Kind::sequence:
      return value.as_sequence()->kind == SequenceKind::generator ||
             !value.as_sequence()->items.empty();
    case Kind::dict:
      return value.as_dict()->size() != 0;
    default:
      return true;
  }
}

std::string undefined_message(const Value& value) {
  const Undefined& undefined = value.as_undefined();
  if (undefined.name == nullptr) return "the value is undefined";
  const std::string name = printable(undefined.name->view());
  if (undefined.owner == nullptr) return fmt::format("'{}' is undefined", name);
  return fmt::format("'{}' object has no attribute '{}'", undefined.owner, name);
}

namespace {

bool equal_sequences(const Sequence& a, const Sequence& b, Budget& budget, unsigned depth) {
  if (&a == &b) return true;
  if (a.kind != b.kind || !a.indexable() || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (budget.exhausted() || !equal(a.items[i], b.items[i], budget, depth + 1)) return false;
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget, unsigned depth) {
  if (&a == &b) return true;
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (other == nullptr || budget.exhausted() || !equal(value, *other, budget, depth + 1))
      return false;
  }
  return true;
}

bool equal_texts(const Text& a, const Text& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  budget.work_bytes(a.size());
  return a.view() == b.view();
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget, unsigned depth) {
  budget.work(1);
  if (depth > limits::template_value_depth_max) return false;
  std::int64_t x = 0;
  std::int64_t y = 0;
  if (a.get_integer(x) && b.get_integer(y)) return x == y;
  double p = 0;
  double q = 0;
  if (a.get_number(p) && b.get_number(q)) return p == q;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return equal_texts(*a.as_text(), *b.as_text(), budget);
    case Kind::sequence:
      return equal_sequences(*a.as_sequence(), *b.as_sequence(), budget, depth);
    case Kind::dict:
      return equal_dicts(*a.as_dict(), *b.as_dict(), budget, depth);
    case Kind::name_space:
      return a.as_namespace() == b.as_namespace();
    case Kind::loop:
      return a.as_loop() == b.as_loop();
    case Kind::callable:
      return a.as_callable() == b.as_callable();
    default:
      return false;  // numbers, all done above
  }
}

Result<bool> less(const Value& a, const Value& b, Budget& budget, unsigned depth) {
  budget.work(1);
  std::int64_t x = 0;
  std::int64_t y = 0;
  if (a.get_integer(x) && b.get_integer(y)) return x < y;
  double p = 0;
  double q = 0;
  if (a.get_number(p) && b.get_number(q)) return p < q;
  if (a.is_string() && b.is_string()) {
    budget.work_bytes(std::min(a.as_text()->size(), b.as_text()->size()));
    return a.view() < b.view();
  }
  if (a.is(Kind::sequence) && b.is(Kind::sequence) && a.as_sequence()->indexable() &&
      a.as_sequence()->kind == b.as_sequence()->kind && depth < limits::template_value_depth_max) {
    const auto& left = a.as_sequence()->items;
    const auto& right = b.as_sequence()->items;
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (budget.exhausted()) return false;
      if (!equal(left[i], right[i], budget, depth + 1))
        return less(left[i], right[i], budget, depth + 1);
    }
    return left.size() < right.size();
  }
  if (a.is_undefined()) return Error{ErrorCode::format, undefined_message(a)};
  if (b.is_undefined()) return Error{ErrorCode::format, undefined_message(b)};
  return Error{ErrorCode::format,
               fmt::format("'{}' and '{}' have no order", type_name(a), type_name(b))};
}

}  // namespace millrace::jinja
