// Methods of lists, dicts and of `loop`.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/builtins.h"

namespace millrace::jinja {

namespace {

Sequence& list_of(const Arguments& call) { return *call.self.as_sequence(); }
Dict& dict_of(const Arguments& call) { return *call.self.as_dict(); }

// Tuples and ranges have only methods that do not change them.
Status changeable(const Arguments& call) {
  if (list_of(call).kind == SequenceKind::list) return {};
  return call.error(fmt::format("a value of type {} cannot be changed", type_name(call.self)));
}

ValueResult append(Arguments& call) {
  MILLRACE_TRY(call.bind({"item"}, 1));
  MILLRACE_TRY(changeable(call));
  call.heap().push(list_of(call), call[0]);
  return Value::none();
}

ValueResult extend(Arguments& call) {
  MILLRACE_TRY(call.bind({"items"}, 1));
  MILLRACE_TRY(changeable(call));
  MILLRACE_ASSIGN(std::vector<Value> items, items_of(call[0], call.heap()));
  for (Value& item : items) call.heap().push(list_of(call), std::move(item));
  return Value::none();
}

ValueResult insert(Arguments& call) {
  MILLRACE_TRY(call.bind({"index", "item"}, 2));
  MILLRACE_TRY(changeable(call));
  MILLRACE_ASSIGN(const std::int64_t index, call.integer(0, 0));
  auto& items = list_of(call).items;
  const auto count = static_cast<std::int64_t>(items.size());
  const std::int64_t at = std::clamp(index < 0 ? index + count : index, std::int64_t{0}, count);
  call.budget().work(items.size());
  call.budget().claim_bytes(sizeof(Value));
  items.insert(items.begin() + at, call[1]);
  return Value::none();
}

ValueResult pop(Arguments& call) {
  MILLRACE_TRY(call.bind({"index"}));
  MILLRACE_TRY(changeable(call));
  MILLRACE_ASSIGN(std::int64_t index, call.integer(0, -1));
  auto& items = list_of(call).items;
  const auto count = static_cast<std::int64_t>(items.size());
  if (index < 0) index += count;
  if (index < 0 || index >= count) return call.error("the index is out of range");
  call.budget().work(static_cast<std::uint64_t>(count - index));
  Value taken = items[static_cast<std::size_t>(index)];
  items.erase(items.begin() + index);
  return taken;
}

ValueResult index_of(Arguments& call) {
  MILLRACE_TRY(call.bind({"item"}, 1));
  const auto& items = list_of(call).items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], call[0], call.budget())) return Value(static_cast<std::int64_t>(i));
  return call.error("the item is not in the list");
}

ValueResult count(Arguments& call) {
  MILLRACE_TRY(call.bind({"item"}, 1));
  std::int64_t found = 0;
  for (const Value& item : list_of(call).items)
    found += equal(item, call[0], call.budget()) ? 1 : 0;
  return Value(found);
}

ValueResult reverse_list(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  MILLRACE_TRY(changeable(call));
  auto& items = list_of(call).items;
  call.budget().work(items.size());
  std::reverse(items.begin(), items.end());
  return Value::none();
}

ValueResult copy_list(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  return call.heap().sequence(list_of(call).kind, list_of(call).items);
}

// dicts

ValueResult get(Arguments& call) {
  MILLRACE_TRY(call.bind({"key", "default"}, 1));
  const Value* found = dict_of(call).find(call[0]);
  if (found != nullptr) return *found;
  return call.given(1) ? call[1] : Value::none();
}

enum class Part : std::uint8_t { keys, values, items };

template <Part part>
ValueResult view(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  std::vector<Value> made;
  for (const auto& [key, value] : dict_of(call).entries()) {
    if (part == Part::keys) made.push_back(key);
    else if (part == Part::values) made.push_back(value);
    else made.emplace_back(call.heap().sequence(SequenceKind::tuple, {key, value}));
  }
  return call.heap().sequence(SequenceKind::view, std::move(made));
}

ValueResult pop_key(Arguments& call) {
  MILLRACE_TRY(call.bind({"key", "default"}, 1));
  Dict& dict = dict_of(call);
  call.budget().work(8 * dict.size());  // the places behind it move
  const Value* found = dict.find(call[0]);
  if (found == nullptr) {
    if (call.given(1)) return call[1];
    return call.error("the key is not in the dict");
  }
  Value taken = *found;
  dict.erase(call[0]);
  return taken;
}

ValueResult update(Arguments& call) {
  if (call.positional.size() > 1) return call.error("takes one argument without a name");
  Dict& dict = dict_of(call);
  if (!call.positional.empty()) {
    if (!call.positional[0].is(Kind::dict)) return call.error("needs a dict");
    const std::vector<Dict::Entry> entries = call.positional[0].as_dict()->entries();
    for (const auto& [key, value] : entries) call.heap().set(dict, key, value);
  }
  for (const auto& [name, value] : call.keywords)
    call.heap().set(dict, call.heap().text(name), value);
  return Value::none();
}

ValueResult setdefault(Arguments& call) {
  MILLRACE_TRY(call.bind({"key", "default"}, 1));
  if (!Dict::can_be_key(call[0])) return call.error("this value cannot be a key");
  const Value* found = dict_of(call).find(call[0]);
  if (found != nullptr) return *found;
  const Value made = call.given(1) ? call[1] : Value::none();
  call.heap().set(dict_of(call), call[0], made);
  return made;
}

ValueResult copy_dict(Arguments& call) {
  MILLRACE_TRY(call.bind({}));
  Dict* made = call.heap().dict();
  for (const auto& [key, value] : dict_of(call).entries()) call.heap().set(*made, key, value);
  return made;
}

// loop

ValueResult cycle(Arguments& call) {
  if (call.positional.empty()) return call.error("needs at least one value");
  return call.positional[call.self.as_loop()->index % call.positional.size()];
}

ValueResult changed(Arguments& call) {
  Loop& loop = *call.self.as_loop();
  bool same = loop.last_changed && loop.last_changed->size() == call.positional.size();
  for (std::size_t i = 0; same && i < call.positional.size(); ++i)
    same = equal((*loop.last_changed)[i], call.positional[i], call.budget());
  loop.last_changed = call.positional;
  return !same;
}

}  // namespace

std::span<const Builtin> list_methods() noexcept {
  static constexpr std::array table = {
      Builtin{"append", append},        Builtin{"extend", extend},
      Builtin{"insert", insert},        Builtin{"pop", pop},
      Builtin{"index", index_of},       Builtin{"count", count},
      Builtin{"reverse", reverse_list}, Builtin{"copy", copy_list},
  };
  return table;
}

std::span<const Builtin> dict_methods() noexcept {
  static constexpr std::array table = {
      Builtin{"get", get},
      Builtin{"keys", view<Part::keys>},
      Builtin{"values", view<Part::values>},
      Builtin{"items", view<Part::items>},
      Builtin{"pop", pop_key},
      Builtin{"update", update},
      Builtin{"setdefault", setdefault},
      Builtin{"copy", copy_dict},
  };
  return table;
}

std::span<const Builtin> loop_methods() noexcept {
  static constexpr std::array table = {Builtin{"cycle", cycle}, Builtin{"changed", changed}};
  return table;
}

}  // namespace millrace::jinja
