#include "model/chat/jinja/callable.h"

#include <fmt/format.h>

#include "model/chat/jinja/builtins.h"
#include "model/chat/jinja/interpreter.h"
#include "runtime/base/log.h"

namespace millrace::jinja {

Heap& Arguments::heap() const noexcept { return interpreter.heap(); }

Status Arguments::bind(std::initializer_list<const char*> names, std::size_t required) {
  names_.assign(names);
  bound_.assign(names.size(), Value());
  given_.assign(names.size(), false);
  if (positional.size() > names.size())
    return error(
        fmt::format("takes at most {} arguments, not {}", names.size(), positional.size()));
  for (std::size_t i = 0; i < positional.size(); ++i) {
    bound_[i] = positional[i];
    given_[i] = true;
  }
  for (const auto& [keyword, value] : keywords) {
    std::size_t at = 0;
    while (at < names_.size() && keyword != names_[at]) ++at;
    if (at == names_.size())
      return error(fmt::format("has no argument '{}'", printable(keyword, 60)));
    if (given_[at]) return error(fmt::format("got two values for '{}'", names_[at]));
    bound_[at] = value;
    given_[at] = true;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!given_[i]) return error(fmt::format("the argument '{}' is missing", names_[i]));
  return {};
}

Result<std::int64_t> Arguments::integer(std::size_t index, std::int64_t fallback) const {
  if (!given(index)) return fallback;
  std::int64_t number = 0;
  if (bound_[index].get_integer(number)) return number;
  return error(fmt::format("'{}' must be an integer, not a value of type {}", names_[index],
                           type_name(bound_[index])));
}

Result<TextRef> Arguments::text(std::size_t index, std::string_view fallback) const {
  if (!given(index)) return make_text(fallback);
  if (bound_[index].is_string()) return bound_[index].as_text();
  return error(fmt::format("'{}' must be a string, not a value of type {}", names_[index],
                           type_name(bound_[index])));
}

bool Arguments::boolean(std::size_t index, bool fallback) const noexcept {
  return given(index) ? truthy(bound_[index]) : fallback;
}

Error Arguments::error(std::string message) const {
  return Error{ErrorCode::format, fmt::format("{}: {}", name, message)};
}

namespace {

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) noexcept {
  for (const Builtin& builtin : table)
    if (name == builtin.name) return &builtin;
  return nullptr;
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), sequence_filters(), number_filters()})
    if (const Builtin* found = find_in(table, name); found != nullptr) return found;
  return nullptr;
}

const Builtin* find_test(std::string_view name) { return find_in(all_tests(), name); }
const Builtin* find_global(std::string_view name) { return find_in(all_globals(), name); }

const Builtin* find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::string:
      return find_in(string_methods(), name);
    case Kind::sequence:
      return object.as_sequence()->indexable() ? find_in(list_methods(), name) : nullptr;
    case Kind::dict:
      return find_in(dict_methods(), name);
    case Kind::loop:
      return find_in(loop_methods(), name);
    default:
      return nullptr;
  }
}

}  // namespace millrace::jinja
