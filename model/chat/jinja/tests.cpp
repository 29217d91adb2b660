// What may stand behind `is`.
#include <fmt/format.h>

#include <array>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/builtins.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/interpreter.h"
#include "model/chat/jinja/operators.h"

namespace millrace::jinja {

namespace {

using Predicate = bool (*)(const Value&);

template <Predicate predicate>
ValueResult simple(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  return predicate(call.self);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is(Kind::dict); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_integer(const Value& value) { return value.is(Kind::integer); }
bool is_float(const Value& value) { return value.is(Kind::floating); }
bool is_boolean(const Value& value) { return value.is(Kind::boolean); }
bool is_true(const Value& value) { return value.is(Kind::boolean) && value.as_boolean(); }
bool is_false(const Value& value) { return value.is(Kind::boolean) && !value.as_boolean(); }
// Jinja's undefined has a call operator (which fails).
bool is_callable(const Value& value) { return value.is(Kind::callable) || value.is_undefined(); }
bool is_escaped(const Value&) { return false; }  // nothing is escaped here

// Whatever has a length and items: dicts and strings too, as in Jinja.
bool is_sequence(const Value& value) {
  if (value.is(Kind::sequence)) return value.as_sequence()->indexable();
  return value.is(Kind::dict) || value.is_string();
}

// isupper and islower: at least one letter with a case, and none of the other case.
bool has_case(const Value& value, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  if (!value.is_string()) return false;
  std::string_view rest = value.view();
  bool found = false;
  while (!rest.empty()) {
    const Character character = first_character(rest);
    if (other(character.code)) return false;
    found |= wanted(character.code);
    rest.remove_prefix(character.bytes);
  }
  return found;
}
bool upper_only(const Value& value) { return has_case(value, is_upper, is_lower); }
bool lower_only(const Value& value) { return has_case(value, is_lower, is_upper); }

ValueResult remainder_is(Arguments& call, const Value& divisor, std::int64_t wanted) {
  MILLRACE_ASSIGN(const Value remainder,
                  arithmetic(Operator::modulo, call.self, divisor, call.heap()));
  return equal(remainder, Value(wanted), call.budget());
}

ValueResult even(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  return remainder_is(call, Value(std::int64_t{2}), 0);
}
ValueResult odd(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  return remainder_is(call, Value(std::int64_t{2}), 1);
}
ValueResult divisible(Arguments& call) {
  MILLRACE_TRY(call.bind({"num"}, 1));
  return remainder_is(call, call[0], 0);
}

template <Operator op>
ValueResult comparison(Arguments& call) {
  MILLRACE_TRY(call.bind({"other"}, 1));
  MILLRACE_ASSIGN(const bool holds, compare(op, call.self, call[0], call.heap()));
  return holds;
}

// `is`: the same object. Equal numbers and texts are not told apart here.
ValueResult same_as(Arguments& call) {
  MILLRACE_TRY(call.bind({"other"}, 1));
  const Value& other = call[0];
  if (call.self.kind() != other.kind()) return false;
  if (other.is(Kind::sequence)) return call.self.as_sequence() == other.as_sequence();
  if (other.is(Kind::dict)) return call.self.as_dict() == other.as_dict();
  return equal(call.self, other, call.budget());
}

ValueResult names_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  return call.self.is_string() && find_filter(call.self.view()) != nullptr;
}
ValueResult names_test(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  return call.self.is_string() && find_test(call.self.view()) != nullptr;
}

}  // namespace

std::span<const Builtin> all_tests() noexcept {
  static constexpr std::array table = {
      Builtin{"defined", simple<is_defined>},
      Builtin{"undefined", simple<is_undefined>},
      Builtin{"none", simple<is_none>},
      Builtin{"string", simple<is_string>},
      Builtin{"mapping", simple<is_mapping>},
      Builtin{"sequence", simple<is_sequence>},
      Builtin{"iterable", simple<is_iterable>},
      Builtin{"number", simple<is_number>},
      Builtin{"integer", simple<is_integer>},
      Builtin{"float", simple<is_float>},
      Builtin{"boolean", simple<is_boolean>},
      Builtin{"true", simple<is_true>},
      Builtin{"false", simple<is_false>},
      Builtin{"callable", simple<is_callable>},
      Builtin{"escaped", simple<is_escaped>},
      Builtin{"upper", simple<upper_only>},
      Builtin{"lower", simple<lower_only>},
      Builtin{"even", even},
      Builtin{"odd", odd},
      Builtin{"divisibleby", divisible},
      Builtin{"equalto", comparison<Operator::equal>},
      Builtin{"eq", comparison<Operator::equal>},
      Builtin{"==", comparison<Operator::equal>},
      Builtin{"ne", comparison<Operator::unequal>},
      Builtin{"!=", comparison<Operator::unequal>},
      Builtin{"lt", comparison<Operator::less>},
      Builtin{"lessthan", comparison<Operator::less>},
      Builtin{"<", comparison<Operator::less>},
      Builtin{"le", comparison<Operator::less_equal>},
      Builtin{"<=", comparison<Operator::less_equal>},
      Builtin{"gt", comparison<Operator::greater>},
      Builtin{"greaterthan", comparison<Operator::greater>},
      Builtin{">", comparison<Operator::greater>},
      Builtin{"ge", comparison<Operator::greater_equal>},
      Builtin{">=", comparison<Operator::greater_equal>},
      Builtin{"in", comparison<Operator::in>},
      Builtin{"sameas", same_as},
      Builtin{"filter", names_filter},
      Builtin{"test", names_test},
  };
  return table;
}

}  // namespace millrace::jinja
