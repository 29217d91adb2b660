// Functions that templates call by name.
#include <fmt/format.h>

#include <array>

#include "model/chat/jinja/access.h"
#include "model/chat/jinja/builtins.h"
#include "model/chat/jinja/calendar.h"
#include "model/chat/jinja/interpreter.h"
#include "model/chat/jinja/printing.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace::jinja {

namespace {

ValueResult range(Arguments& call) {
  MILLRACE_TRY(call.bind({"start", "stop", "step"}, 1));
  MILLRACE_ASSIGN(const std::int64_t first, call.integer(0, 0));
  MILLRACE_ASSIGN(const std::int64_t second, call.integer(1, 0));
  MILLRACE_ASSIGN(const std::int64_t step, call.integer(2, 1));
  const std::int64_t start = call.given(1) ? first : 0;
  const std::int64_t stop = call.given(1) ? second : first;
  if (step == 0) return call.error("the step is zero");
  std::vector<Value> items;
  std::int64_t at = start;
  while (step > 0 ? at < stop : at > stop) {
    if (items.size() == static_cast<std::size_t>(limits::template_range_max))
      return call.error(fmt::format("more than {} numbers", limits::template_range_max));
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return call.heap().sequence(SequenceKind::range, std::move(items));
}

// dict(mapping, name=value …) and namespace(…) take the same arguments.
Status fill(Arguments& call, Dict& target) {
  if (call.positional.size() > 1) return call.error("takes one argument without a name");
  if (!call.positional.empty()) {
    const Value& source = call.positional[0];
    if (source.is(Kind::dict)) {
      for (const auto& [key, value] : source.as_dict()->entries())
        call.heap().set(target, key, value);
    } else {
      MILLRACE_ASSIGN(const std::vector<Value> pairs, items_of(source, call.heap()));
      for (const Value& pair : pairs) {
        MILLRACE_ASSIGN(const std::vector<Value> parts, items_of(pair, call.heap()));
        if (parts.size() != 2 || !Dict::can_be_key(parts[0]))
          return call.error("needs pairs of a key and a value");
        call.heap().set(target, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : call.keywords)
    call.heap().set(target, call.heap().text(name), value);
  return {};
}

ValueResult make_dict(Arguments& call) {
  Dict* dict = call.heap().dict();
  MILLRACE_TRY(fill(call, *dict));
  return dict;
}

ValueResult make_namespace(Arguments& call) {
  Namespace* made = call.heap().name_space();
  MILLRACE_TRY(fill(call, made->attributes));
  return made;
}

ValueResult raise_exception(Arguments& call) {
  MILLRACE_TRY(call.bind({"message"}, 1));
  MILLRACE_ASSIGN(const TextRef message, to_text(call[0], call.budget()));
  return Error{ErrorCode::usage, fmt::format("the template refuses the conversation: {}",
                                             printable(message->view(), 500))};
}

ValueResult strftime_now(Arguments& call) {
  MILLRACE_TRY(call.bind({"format"}, 1));
  MILLRACE_ASSIGN(const TextRef format, call.text(0, ""));
  MILLRACE_CHECK(call.interpreter.now().has_value());
  MILLRACE_ASSIGN(const std::string text, format_moment(*call.interpreter.now(), format->view()));
  return call.heap().string(text);
}

ValueResult refused(Arguments& call) {
  return call.error("this function is not available in chat templates");
}

}  // namespace

std::span<const Builtin> all_globals() noexcept {
  static constexpr std::array table = {
      Builtin{"range", range},
      Builtin{"dict", make_dict},
      Builtin{"namespace", make_namespace},
      Builtin{"raise_exception", raise_exception},
      Builtin{"strftime_now", strftime_now},
      Builtin{"lipsum", refused},
      Builtin{"cycler", refused},
      Builtin{"joiner", refused},
  };
  return table;
}

}  // namespace millrace::jinja
