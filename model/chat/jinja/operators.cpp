#include "model/chat/jinja/operators.h"

#include <fmt/format.h>

#include <cmath>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/formatting.h"
#include "model/chat/jinja/string_search.h"
#include "runtime/base/limits.h"

namespace millrace::jinja {

namespace {

const char* symbol_of(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "**";
    default:
      return "in";
  }
}

Error unsupported(Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) return Error{ErrorCode::format, undefined_message(a)};
  if (b.is_undefined()) return Error{ErrorCode::format, undefined_message(b)};
  return Error{ErrorCode::format, fmt::format("'{}' cannot take values of type {} and {}",
                                              symbol_of(op), type_name(a), type_name(b))};
}

Error too_large() { return Error{ErrorCode::format, "an integer leaves 64 bits"}; }
Error division_by_zero() { return Error{ErrorCode::format, "division by zero"}; }

ValueResult integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return division_by_zero();
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  std::int64_t result = 1;
  if (base == 1 || base == 0 || base == -1) {
    if (base == -1) return Value(std::int64_t{exponent % 2 == 0 ? 1 : -1});
    return Value(std::int64_t{exponent == 0 ? 1 : base});
  }
  for (std::int64_t i = 0; i < exponent; ++i)  // ends by overflow after at most 64 rounds
    if (__builtin_mul_overflow(result, base, &result)) return too_large();
  return result;
}

ValueResult integers(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) return too_large();
      return result;
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) return too_large();
      return result;
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) return too_large();
      return result;
    case Operator::power:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) return division_by_zero();
  if (op == Operator::divide) return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) {  // the one quotient that can overflow
    if (op == Operator::modulo) return Value(std::int64_t{0});
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) return too_large();
    return result;
  }
  const std::int64_t remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == Operator::modulo) return adjust ? remainder + b : remainder;
  return a / b - (adjust ? 1 : 0);
}

ValueResult floats(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::power:
      if (a == 0 && b < 0) return division_by_zero();
      return std::pow(a, b);
    default:
      break;
  }
  if (b == 0) return division_by_zero();
  if (op == Operator::divide) return a / b;
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == Operator::modulo) return remainder == 0 ? std::copysign(0.0, b) : remainder;
  return std::floor((a - remainder) / b + 0.5);
}

ValueResult repeat(const Value& what, std::int64_t times, Heap& heap) {
  if (what.is_string()) {
    TextBuilder out(heap.budget());
    out.append_repeated(*what.as_text(), times);
    return out.finish();
  }
  const std::vector<Value>& source = what.as_sequence()->items;
  const std::uint64_t room = limits::template_memory_bytes_max / sizeof(Value);
  if (times > 0 && !source.empty() && static_cast<std::uint64_t>(times) > room / source.size()) {
    heap.budget().claim_bytes(limits::template_memory_bytes_max);
    return heap.sequence(SequenceKind::list, {});
  }
  std::vector<Value> items;
  for (std::int64_t i = 0; i < times && !source.empty(); ++i)
    items.insert(items.end(), source.begin(), source.end());
  return heap.sequence(what.as_sequence()->kind, std::move(items));
}

bool repeatable(const Value& value) noexcept {
  return value.is_string() ||
         (value.is(Kind::sequence) && (value.as_sequence()->kind == SequenceKind::list ||
                                       value.as_sequence()->kind == SequenceKind::tuple));
}

ValueResult join_two(const Value& a, const Value& b, Heap& heap) {
  if (a.is_string() && b.is_string()) {
    TextBuilder out(heap.budget());
    out.append(*a.as_text()).append(*b.as_text());
    return out.finish();
  }
  if (!repeatable(a) || !repeatable(b) || a.is_string() || b.is_string() ||
      a.as_sequence()->kind != b.as_sequence()->kind)
    return unsupported(Operator::add, a, b);
  std::vector<Value> items = a.as_sequence()->items;
  const auto& more = b.as_sequence()->items;
  items.insert(items.end(), more.begin(), more.end());
  return heap.sequence(a.as_sequence()->kind, std::move(items));
}

}  // namespace

ValueResult arithmetic(Operator op, const Value& a, const Value& b, Heap& heap) {
  std::int64_t x = 0;
  std::int64_t y = 0;
  double p = 0;
  double q = 0;
  if (a.get_integer(x) && b.get_integer(y)) return integers(op, x, y);
  if (a.get_number(p) && b.get_number(q)) return floats(op, p, q);
  if (op == Operator::add) return join_two(a, b, heap);
  if (op == Operator::multiply && repeatable(a) && b.get_integer(y)) return repeat(a, y, heap);
  if (op == Operator::multiply && repeatable(b) && a.get_integer(x)) return repeat(b, x, heap);
  if (op == Operator::modulo && a.is_string()) {
    const bool tuple = b.is(Kind::sequence) && b.as_sequence()->kind == SequenceKind::tuple;
    return percent_format(a.as_text(), tuple ? b.as_sequence()->items : std::vector<Value>{b},
                          heap.budget());
  }
  return unsupported(op, a, b);
}

Result<bool> contains(const Value& container, const Value& item, Heap& heap) {
  if (container.is_string()) {
    if (!item.is_string()) return unsupported(Operator::in, item, container);
    return find_text(container.view(), item.view(), 0, heap.budget()) != std::string_view::npos;
  }
  if (container.is(Kind::dict)) return container.as_dict()->find(item) != nullptr;
  if (!is_iterable(container)) return unsupported(Operator::in, item, container);
  MILLRACE_ASSIGN(const std::vector<Value> items, items_of(container, heap));
  for (const Value& candidate : items)
    if (equal(candidate, item, heap.budget())) return true;
  return false;
}

Result<bool> compare(Operator op, const Value& a, const Value& b, Heap& heap) {
  Budget& budget = heap.budget();
  switch (op) {
    case Operator::equal:
      return equal(a, b, budget);
    case Operator::unequal:
      return !equal(a, b, budget);
    case Operator::less:
      return less(a, b, budget);
    case Operator::greater:
      return less(b, a, budget);
    case Operator::in:
      return contains(b, a, heap);
    case Operator::not_in: {
      MILLRACE_ASSIGN(const bool found, contains(b, a, heap));
      return !found;
    }
    default:
      break;
  }
  // <= and >=: not the opposite order, but for NaN, which has none.
  double p = 0;
  double q = 0;
  if (a.get_number(p) && b.get_number(q) && (std::isnan(p) || std::isnan(q))) return false;
  MILLRACE_ASSIGN(const bool opposite,
                  op == Operator::less_equal ? less(b, a, budget) : less(a, b, budget));
  return !opposite;
}

}  // namespace millrace::jinja
