// Filters on lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/builtins.h"
#include "model/chat/jinja/interpreter.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/printing.h"
#include "model/chat/jinja/sorting.h"
#include "model/chat/jinja/text_operations.h"

namespace millrace::jinja {

namespace {

Result<std::vector<Value>> items(Arguments& call) { return items_of(call.self, call.heap()); }

Value list(std::vector<Value> values, Arguments& call, SequenceKind kind = SequenceKind::list) {
  return call.heap().sequence(kind, std::move(values));
}

ValueResult default_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({"default_value", "boolean"}));
  const bool replaced = call.self.is_undefined() || (call.boolean(1, false) && !truthy(call.self));
  if (!replaced) return call.self;
  return call.given(0) ? call[0] : call.heap().string("");
}

ValueResult length(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_ASSIGN(const std::int64_t count, length_of(call.self));
  return Value(count);
}

ValueResult first(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_ASSIGN(const std::vector<Value> values, items(call));
  return values.empty() ? Value() : values.front();
}

ValueResult last(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_ASSIGN(const std::vector<Value> values, items(call));
  return values.empty() ? Value() : values.back();
}

ValueResult list_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_ASSIGN(std::vector<Value> values, items(call));
  return list(std::move(values), call);
}

ValueResult reverse(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  if (call.self.is_string()) return slice_of(call.self, {{}, {}, -1}, call.heap());
  MILLRACE_ASSIGN(std::vector<Value> values, items(call));
  std::reverse(values.begin(), values.end());
  return list(std::move(values), call, SequenceKind::generator);
}

ValueResult join(Arguments& call) {
  MILLRACE_TRY(call.bind({"d", "attribute"}));
  MILLRACE_ASSIGN(const std::vector<Value> values, items(call));
  TextRef separator = make_text("");
  if (call.given(0)) {
    MILLRACE_ASSIGN(separator, to_text(call[0], call.budget()));
  }
  TextBuilder out(call.budget());
  for (std::size_t i = 0; i < values.size(); ++i) {
    Value value = values[i];
    if (call.given(1) && !call[1].is_none()) {
      MILLRACE_ASSIGN(value, path_of(value, call[1], call.heap()));
    }
    MILLRACE_ASSIGN(const TextRef text, to_text(value, call.budget()));
    if (i != 0) out.append(*separator);
    out.append(*text);
    if (call.budget().exhausted() || out.overflowed()) break;
  }
  return out.finish();
}

ValueResult items_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  std::vector<Value> pairs;
  if (call.self.is(Kind::dict)) {
    for (const auto& [key, value] : call.self.as_dict()->entries())
      pairs.emplace_back(call.heap().sequence(SequenceKind::tuple, {key, value}));
  } else if (!call.self.is_undefined()) {
    return call.error(fmt::format("needs a dict, not a value of type {}", type_name(call.self)));
  }
  return list(std::move(pairs), call, SequenceKind::generator);
}

// What values are compared by: an attribute of them if one is named; texts without their case.
ValueResult sort_key(const Value& item, const Value& attribute, bool with_case, Heap& heap) {
  Value key = item;
  if (!attribute.is_undefined() && !attribute.is_none()) {
    MILLRACE_ASSIGN(key, path_of(item, attribute, heap));
  }
  if (!with_case && key.is_string()) return change_case(key.as_text(), Case::lower, heap.budget());
  return key;
}

Result<std::vector<Keyed>> keyed(Arguments& call, const Value& attribute, bool with_case) {
  MILLRACE_ASSIGN(std::vector<Value> values, items(call));
  std::vector<Keyed> made;
  made.reserve(values.size());
  for (Value& value : values) {
    MILLRACE_ASSIGN(Value key, sort_key(value, attribute, with_case, call.heap()));
    made.push_back({std::move(key), std::move(value)});
    if (call.budget().exhausted()) break;
  }
  return made;
}

// `sort` compares lists of keys, one for each attribute ("a,b"): equal ones need no order then.
Result<std::vector<Keyed>> keyed_by_list(Arguments& call, const Value& attribute, bool with_case) {
  std::vector<Value> attributes{attribute};
  if (attribute.is_string()) {
    attributes.clear();
    for (TextRef& part : split_at(attribute.as_text(), *make_text(","), -1, false, call.budget()))
      attributes.emplace_back(std::move(part));
  }
  MILLRACE_ASSIGN(std::vector<Value> values, items(call));
  std::vector<Keyed> made;
  made.reserve(values.size());
  for (Value& value : values) {
    std::vector<Value> keys;
    for (const Value& part : attributes) {
      MILLRACE_ASSIGN(Value key, sort_key(value, part, with_case, call.heap()));
      keys.push_back(std::move(key));
    }
    made.push_back({call.heap().sequence(SequenceKind::list, std::move(keys)), std::move(value)});
    if (call.budget().exhausted()) break;
  }
  return made;
}

Value unkeyed(std::vector<Keyed> sorted, Arguments& call, SequenceKind kind = SequenceKind::list) {
  std::vector<Value> values;
  values.reserve(sorted.size());
  for (Keyed& entry : sorted) values.push_back(std::move(entry.item));
  return list(std::move(values), call, kind);
}

ValueResult sort(Arguments& call) {
  MILLRACE_TRY(call.bind({"reverse", "case_sensitive", "attribute"}));
  MILLRACE_ASSIGN(std::vector<Keyed> entries, keyed_by_list(call, call[2], call.boolean(1, false)));
  MILLRACE_TRY(stable_sort(entries, call.boolean(0, false), call.budget()));
  return unkeyed(std::move(entries), call);
}

ValueResult dictsort(Arguments& call) {
  MILLRACE_TRY(call.bind({"case_sensitive", "by", "reverse"}));
  MILLRACE_ASSIGN(const TextRef by, call.text(1, "key"));
  if (!call.self.is(Kind::dict)) return call.error("needs a dict");
  if (by->view() != "key" && by->view() != "value") return call.error("'by' is key or value");
  std::vector<Keyed> entries;
  for (const auto& [key, value] : call.self.as_dict()->entries()) {
    MILLRACE_ASSIGN(Value sorted_by, sort_key(by->view() == "key" ? key : value, Value(),
                                              call.boolean(0, false), call.heap()));
    entries.push_back(
        {std::move(sorted_by), call.heap().sequence(SequenceKind::tuple, {key, value})});
  }
  MILLRACE_TRY(stable_sort(entries, call.boolean(2, false), call.budget()));
  return unkeyed(std::move(entries), call);
}

ValueResult unique(Arguments& call) {
  MILLRACE_TRY(call.bind({"case_sensitive", "attribute"}));
  MILLRACE_ASSIGN(std::vector<Keyed> entries, keyed(call, call[1], call.boolean(0, false)));
  Dict* seen = call.heap().dict();
  std::vector<Value> values;
  for (Keyed& entry : entries) {
    if (!Dict::can_be_key(entry.key))
      return call.error(fmt::format("values of type {} have no key", type_name(entry.key)));
    if (seen->find(entry.key) != nullptr) continue;
    call.heap().set(*seen, entry.key, Value::none());
    values.push_back(std::move(entry.item));
    if (call.budget().exhausted()) break;
  }
  return list(std::move(values), call, SequenceKind::generator);
}

template <bool largest>
ValueResult extreme(Arguments& call) {
  MILLRACE_TRY(call.bind({"case_sensitive", "attribute"}));
  MILLRACE_ASSIGN(const std::vector<Keyed> entries, keyed(call, call[1], call.boolean(0, false)));
  if (entries.empty()) return Value();
  const Keyed* best = entries.data();
  for (const Keyed& entry : entries) {
    MILLRACE_ASSIGN(const bool better, largest ? less(best->key, entry.key, call.budget())
                                               : less(entry.key, best->key, call.budget()));
    if (better) best = &entry;
  }
  return best->item;
}

ValueResult sum(Arguments& call) {
  MILLRACE_TRY(call.bind({"attribute", "start"}));
  MILLRACE_ASSIGN(const std::vector<Value> values, items(call));
  Value total = call.given(1) ? call[1] : Value(std::int64_t{0});
  for (const Value& item : values) {
    Value value = item;
    if (call.given(0) && !call[0].is_none()) {
      MILLRACE_ASSIGN(value, path_of(item, call[0], call.heap()));
    }
    MILLRACE_ASSIGN(total, arithmetic(Operator::add, total, value, call.heap()));
    if (call.budget().exhausted()) break;
  }
  return total;
}

// map and select take whatever is false (none, 0) for nothing, as Jinja does.
Result<std::vector<Value>> items_if_any(Arguments& call) {
  if (!truthy(call.self)) return std::vector<Value>();
  return items(call);
}

// map(attribute=…, default=…) or map('filter', arguments …).
ValueResult map(Arguments& call) {
  MILLRACE_ASSIGN(const std::vector<Value> values, items_if_any(call));
  Value attribute;
  Value fallback;
  for (const auto& [name, value] : call.keywords) {
    if (call.positional.empty() && name == "attribute") attribute = value;
    else if (call.positional.empty() && name == "default") fallback = value;
  }
  std::vector<Value> made;
  made.reserve(values.size());
  for (const Value& item : values) {
    Value value;
    if (call.positional.empty()) {
      if (attribute.is_undefined()) return call.error("needs the name of a filter or an attribute");
      MILLRACE_ASSIGN(value, path_of(item, attribute, call.heap()));
      if (value.is_undefined() && !fallback.is_undefined()) value = fallback;
    } else {
      if (!call.positional[0].is_string()) return call.error("the name of a filter is a string");
      MILLRACE_ASSIGN(
          value, call.interpreter.apply_filter(call.positional[0].view(), item,
                                               {call.positional.begin() + 1, call.positional.end()},
                                               call.keywords));
    }
    made.push_back(std::move(value));
    if (call.budget().exhausted()) break;
  }
  return list(std::move(made), call, SequenceKind::generator);
}

// select, reject: by the item; selectattr, rejectattr: by an attribute of it, named first.
template <bool wanted, bool by_attribute>
ValueResult select(Arguments& call) {
  MILLRACE_ASSIGN(const std::vector<Value> values, items_if_any(call));
  constexpr std::size_t test_at = by_attribute ? 1 : 0;
  if (call.positional.size() < test_at) return call.error("needs the name of an attribute");
  const bool tested = call.positional.size() > test_at;
  if (tested && !call.positional[test_at].is_string())
    return call.error("the name of a test is a string");
  std::vector<Value> kept;
  for (const Value& item : values) {
    Value subject = item;
    if (by_attribute) {
      MILLRACE_ASSIGN(subject, path_of(item, call.positional[0], call.heap()));
    }
    bool holds = truthy(subject);
    if (tested) {
      const auto arguments = call.positional.begin() + static_cast<std::ptrdiff_t>(test_at) + 1;
      MILLRACE_ASSIGN(holds, call.interpreter.apply_test(call.positional[test_at].view(), subject,
                                                         {arguments, call.positional.end()}));
    }
    call.budget().work(1);
    if (holds == wanted) kept.push_back(item);
    if (call.budget().exhausted()) break;
  }
  return list(std::move(kept), call, SequenceKind::generator);
}

ValueResult batch(Arguments& call) {
  MILLRACE_TRY(call.bind({"linecount", "fill_with"}, 1));
  MILLRACE_ASSIGN(const std::int64_t size, call.integer(0, 1));
  MILLRACE_ASSIGN(const std::vector<Value> values, items(call));
  if (size < 1) return call.error("the size must be at least 1");
  std::vector<Value> rows;
  for (std::size_t at = 0; at < values.size();) {
    std::vector<Value> row;
    while (at < values.size() && row.size() < static_cast<std::size_t>(size))
      row.push_back(values[at++]);
    if (call.given(1) && !call[1].is_none()) {
      call.budget().work(static_cast<std::uint64_t>(size) - row.size());
      if (!call.budget().exhausted()) row.resize(static_cast<std::size_t>(size), call[1]);
    }
    rows.emplace_back(call.heap().sequence(SequenceKind::list, std::move(row)));
  }
  return list(std::move(rows), call, SequenceKind::generator);
}

ValueResult slice_filter(Arguments& call) {
  MILLRACE_TRY(call.bind({"slices", "fill_with"}, 1));
  MILLRACE_ASSIGN(const std::int64_t wanted, call.integer(0, 1));
  MILLRACE_ASSIGN(const std::vector<Value> values, items(call));
  if (wanted < 1 || wanted > 10'000) return call.error("the number of slices must be 1 to 10000");
  const auto slices = static_cast<std::size_t>(wanted);
  std::vector<Value> columns;
  std::size_t at = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const std::size_t extra = values.size() % slices;
    const std::size_t count = values.size() / slices + (i < extra ? 1 : 0);
    std::vector<Value> column(values.begin() + static_cast<std::ptrdiff_t>(at),
                              values.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    if (call.given(1) && !call[1].is_none() && i >= extra && extra != 0) column.push_back(call[1]);
    columns.emplace_back(call.heap().sequence(SequenceKind::list, std::move(column)));
  }
  return list(std::move(columns), call, SequenceKind::generator);
}

ValueResult attr(Arguments& call) {
  MILLRACE_TRY(call.bind({"name"}, 1));
  MILLRACE_ASSIGN(const TextRef name, call.text(0, ""));
  if (call.self.is(Kind::dict)) {  // only real attributes, so none of a dict's entries
    const Builtin* method = find_method(call.self, name->view());
    if (method == nullptr) return Value::undefined(name, type_name(call.self));
  }
  return attribute_of(call.self, name, call.heap());
}

// Pairs of a key and the items that have it, sorted by key.
ValueResult groupby(Arguments& call) {
  MILLRACE_TRY(call.bind({"attribute", "default", "case_sensitive"}, 1));
  MILLRACE_ASSIGN(std::vector<Keyed> entries, keyed(call, call[0], call.boolean(2, false)));
  for (Keyed& entry : entries)
    if (entry.key.is_undefined() && call.given(1)) entry.key = call[1];
  MILLRACE_TRY(stable_sort(entries, false, call.budget()));
  std::vector<Value> groups;
  for (std::size_t at = 0; at < entries.size() && !call.budget().exhausted();) {
    // The group's name is the key of its first item, with its case.
    MILLRACE_ASSIGN(Value shown, path_of(entries[at].item, call[0], call.heap()));
    if (shown.is_undefined()) shown = entries[at].key;
    const Value key = entries[at].key;
    std::vector<Value> members;
    while (at < entries.size() && equal(entries[at].key, key, call.budget()))
      members.push_back(std::move(entries[at++].item));
    if (members.empty()) return call.error("keys of this kind cannot be grouped");
    Sequence* group = call.heap().sequence(SequenceKind::list, std::move(members));
    groups.emplace_back(call.heap().sequence(SequenceKind::tuple, {std::move(shown), group}));
  }
  return list(std::move(groups), call);
}

}  // namespace

std::span<const Builtin> sequence_filters() noexcept {
  static constexpr std::array table = {
      Builtin{"default", default_filter},
      Builtin{"d", default_filter},
      Builtin{"length", length},
      Builtin{"count", length},
      Builtin{"first", first},
      Builtin{"last", last},
      Builtin{"list", list_filter},
      Builtin{"reverse", reverse},
      Builtin{"join", join},
      Builtin{"items", items_filter},
      Builtin{"sort", sort},
      Builtin{"dictsort", dictsort},
      Builtin{"unique", unique},
      Builtin{"max", extreme<true>},
      Builtin{"min", extreme<false>},
      Builtin{"sum", sum},
      Builtin{"map", map},
      Builtin{"select", select<true, false>},
      Builtin{"reject", select<false, false>},
      Builtin{"selectattr", select<true, true>},
      Builtin{"rejectattr", select<false, true>},
      Builtin{"batch", batch},
      Builtin{"slice", slice_filter},
      Builtin{"attr", attr},
      Builtin{"groupby", groupby},
  };
  return table;
}

}  // namespace millrace::jinja
