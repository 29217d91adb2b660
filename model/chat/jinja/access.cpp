#include "model/chat/jinja/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "model/chat/jinja/callable.h"

namespace millrace::jinja {

namespace {

Error wrong_type(const char* what, const Value& value) {
  if (value.is_undefined()) return Error{ErrorCode::format, undefined_message(value)};
  return Error{ErrorCode::format, fmt::format("a value of type {} {}", type_name(value), what)};
}

Value loop_attribute(Loop& loop, std::string_view name) {
  const auto number = [](std::size_t value) { return Value(static_cast<std::int64_t>(value)); };
  const std::size_t count = loop.items.size();
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "revindex") return number(count - loop.index);
  if (name == "revindex0") return number(count - loop.index - 1);
  if (name == "first") return loop.index == 0;
  if (name == "last") return loop.index + 1 == count;
  if (name == "length") return number(count);
  if (name == "depth") return number(loop.depth + 1);
  if (name == "depth0") return number(loop.depth);
  if (name == "previtem" && loop.index > 0) return loop.items[loop.index - 1];
  if (name == "nextitem" && loop.index + 1 < count) return loop.items[loop.index + 1];
  return {};
}

// The character at `index`, which is in range.
Value character_at(const TextRef& text, std::size_t index, Heap& heap) {
  const std::size_t begin = text->byte_of(index, heap.budget());
  return slice(text, begin, begin + text->length_at(begin), heap.budget());
}

// Python's reading of an index: negative ones count from the end. False if it is out of range.
bool resolve_index(std::int64_t index, std::size_t size, std::size_t& out) noexcept {
  const auto count = static_cast<std::int64_t>(size);
  if (index < -count || index >= count) return false;
  out = static_cast<std::size_t>(index < 0 ? index + count : index);
  return true;
}

}  // namespace

ValueResult attribute_of(const Value& object, const TextRef& name, Heap& heap) {
  heap.budget().work(1);
  if (object.is_undefined()) return Error{ErrorCode::format, undefined_message(object)};
  if (object.is(Kind::loop)) {
    Value found = loop_attribute(*object.as_loop(), name->view());
    if (!found.is_undefined()) return found;
  }
  if (object.is(Kind::name_space)) {
    const Value* found = object.as_namespace()->attributes.find(name->view());
    if (found != nullptr) return *found;
  }
  if (const Builtin* method = find_method(object, name->view()); method != nullptr) {
    Callable bound;
    bound.builtin = method;
    bound.self = object;
    return heap.callable(std::move(bound));
  }
  if (object.is(Kind::dict)) {
    const Value* found = object.as_dict()->find(name->view());
    if (found != nullptr) return *found;
  }
  return Value::undefined(name, type_name(object));
}

ValueResult item_of(const Value& object, const Value& index, Heap& heap) {
  heap.budget().work(1);
  if (object.is_undefined()) return Error{ErrorCode::format, undefined_message(object)};
  if (object.is(Kind::dict)) {
    const Value* found = object.as_dict()->find(index);
    if (found != nullptr) return *found;
  }
  std::int64_t number = 0;
  std::size_t at = 0;
  if (index.get_integer(number)) {
    if (object.is(Kind::sequence) && object.as_sequence()->indexable() &&
        resolve_index(number, object.as_sequence()->items.size(), at))
      return object.as_sequence()->items[at];
    if (object.is_string() && resolve_index(number, object.as_text()->characters(), at))
      return character_at(object.as_text(), at, heap);
    return Value::undefined(heap.text(fmt::format("{}", number)), type_name(object));
  }
  if (index.is_string()) return attribute_of(object, index.as_text(), heap);
  return Value::undefined(make_text(type_name(index)), type_name(object));
}

ValueResult path_of(const Value& object, const Value& path, Heap& heap) {
  if (!path.is_string()) return item_of(object, path, heap);
  Value current = object;
  std::string_view rest = path.view();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    std::int64_t number = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
    MILLRACE_ASSIGN(current,
                    item_of(current, is_number ? Value(number) : Value(heap.text(part)), heap));
    if (dot == std::string_view::npos) return current;
    rest.remove_prefix(dot + 1);
  }
}

namespace {

// First index, step and count of a slice over `size` items, as Python computes them.
struct SlicePlan {
  std::int64_t first = 0, step = 1, count = 0;
};

Result<SlicePlan> plan_slice(const SliceBounds& bounds, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  SlicePlan plan;
  plan.step = bounds.step.value_or(1);
  if (plan.step == 0) return Error{ErrorCode::format, "the step of a slice is zero"};
  const bool backwards = plan.step < 0;
  const std::int64_t low = backwards ? -1 : 0;
  const std::int64_t high = backwards ? count - 1 : count;
  const auto clamped = [&](std::optional<std::int64_t> bound, std::int64_t absent) {
    if (!bound) return absent;
    const std::int64_t from_begin = *bound < 0 ? *bound + count : *bound;
    return std::clamp(from_begin, low, high);
  };
  plan.first = clamped(bounds.begin, backwards ? high : low);
  const std::int64_t last = clamped(bounds.end, backwards ? low : high);
  // Steps longer than the text are all alike; this keeps the division away from the limits.
  plan.step = std::clamp(plan.step, -count - 1, count + 1);
  if (!backwards && last > plan.first) plan.count = (last - plan.first - 1) / plan.step + 1;
  if (backwards && last < plan.first) plan.count = (plan.first - last - 1) / -plan.step + 1;
  return plan;
}

ValueResult slice_text(const TextRef& text, const SliceBounds& bounds, Heap& heap) {
  MILLRACE_ASSIGN(const SlicePlan plan, plan_slice(bounds, text->characters()));
  Budget& budget = heap.budget();
  const auto first = static_cast<std::size_t>(plan.first);
  const auto count = static_cast<std::size_t>(plan.count);
  if (count == 0) return heap.text("");
  if (plan.step == 1) {
    const std::size_t begin = text->byte_of(first, budget);
    return slice(text, begin, text->byte_of(first + count, budget), budget);
  }
  // Where each character begins, once; then any order is cheap.
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text->size(); at += text->length_at(at)) starts.push_back(at);
  budget.work(starts.size());
  starts.push_back(text->size());
  TextBuilder out(budget);
  std::int64_t at = plan.first;
  for (std::size_t i = 0; i < count; ++i, at += plan.step)
    out.append(*text, starts[static_cast<std::size_t>(at)],
               starts[static_cast<std::size_t>(at) + 1]);
  return out.finish();
}

}  // namespace

ValueResult slice_of(const Value& object, const SliceBounds& bounds, Heap& heap) {
  if (object.is_undefined()) return Error{ErrorCode::format, undefined_message(object)};
  if (object.is_string()) return slice_text(object.as_text(), bounds, heap);
  if (!object.is(Kind::sequence) || !object.as_sequence()->indexable())
    return wrong_type("cannot be sliced", object);
  const Sequence& sequence = *object.as_sequence();
  MILLRACE_ASSIGN(const SlicePlan plan, plan_slice(bounds, sequence.items.size()));
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(plan.count));
  std::int64_t at = plan.first;
  for (std::int64_t i = 0; i < plan.count; ++i, at += plan.step)
    items.push_back(sequence.items[static_cast<std::size_t>(at)]);
  return heap.sequence(sequence.kind, std::move(items));
}

bool is_iterable(const Value& value) noexcept {
  return value.is_undefined() || value.is_string() || value.is(Kind::sequence) ||
         value.is(Kind::dict);
}

Result<std::vector<Value>> items_of(const Value& value, Heap& heap) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is(Kind::sequence)) {
    Sequence& sequence = *value.as_sequence();
    if (sequence.kind == SequenceKind::generator) items.swap(sequence.items);
    else items = sequence.items;
    heap.budget().work(items.size());
    return items;
  }
  if (value.is(Kind::dict)) {
    for (const auto& [key, entry] : value.as_dict()->entries()) items.push_back(key);
    heap.budget().work(items.size());
    return items;
  }
  if (!value.is_string()) return wrong_type("cannot be iterated over", value);
  const TextRef& text = value.as_text();
  for (std::size_t at = 0; at < text->size() && !heap.budget().exhausted();) {
    const std::size_t end = at + text->length_at(at);
    items.emplace_back(slice(text, at, end, heap.budget()));
    heap.budget().work(1);
    at = end;
  }
  return items;
}

Result<std::int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return std::int64_t{0};
  if (value.is_string()) return static_cast<std::int64_t>(value.as_text()->characters());
  if (value.is(Kind::dict)) return static_cast<std::int64_t>(value.as_dict()->size());
  if (value.is(Kind::loop)) return static_cast<std::int64_t>(value.as_loop()->items.size());
  if (!value.is(Kind::sequence) || value.as_sequence()->kind == SequenceKind::generator)
    return wrong_type("has no length", value);
  return static_cast<std::int64_t>(value.as_sequence()->items.size());
}

}  // namespace millrace::jinja
