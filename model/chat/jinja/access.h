// What is inside of values: attributes, items, slices, iteration.
#pragma once

#include <optional>
#include <vector>

#include "model/chat/jinja/value.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

// object.name: a method of the value's type, else an entry of that name, else undefined. An error
// for an undefined object.
ValueResult attribute_of(const Value& object, const TextRef& name, Heap& heap);
// object[index]: an entry, else (for names) an attribute, else undefined.
ValueResult item_of(const Value& object, const Value& index, Heap& heap);
// "a.b.0": attributes, items and indexes in a row, as filters name them.
ValueResult path_of(const Value& object, const Value& path, Heap& heap);

struct SliceBounds {
  std::optional<std::int64_t> begin, end, step;
};
ValueResult slice_of(const Value& object, const SliceBounds& bounds, Heap& heap);

// What a `for` goes through: items, keys, characters; nothing for undefined. Generators are empty
// afterwards. An error for what cannot be walked through.
Result<std::vector<Value>> items_of(const Value& value, Heap& heap);
bool is_iterable(const Value& value) noexcept;
// len(). An error for what has no length.
Result<std::int64_t> length_of(const Value& value);

}  // namespace millrace::jinja
