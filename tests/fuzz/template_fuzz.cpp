// Chat templates: whatever they are, rendering ends, with valid UTF-8 and true marks, or with an
// error that a terminal can show; and it ends alike every time.
#include <string>
#include <string_view>

#include "model/chat/fallback_templates.h"
#include "model/chat/jinja/template.h"
#include "runtime/base/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace millrace::testing {

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds = {
      "{% for m in messages if m.content %}{{ loop.index }}{{ m['content'][::-1]|upper }}{% endfor "
      "%}",
      "{% macro f(a, b=2) %}{{ caller(a) }}{% endmacro %}{% call(x) f(1) %}{{ x ~ b }}{% endcall "
      "%}",
      "{%- set ns = namespace(l=[]) -%}{% set ns.l = ns.l + ['a', 1.5, none] %}{{ ns.l|tojson }}",
      "{{ '%s-%05d' % ('é', 42) }}{{ messages|map(attribute='role')|join(',')|replace('u', '') }}",
      "{% raw %}{{ }}{% endraw %}{# c -#} {% filter trim %} x {% endfilter %}"};
  for (const FallbackTemplate& entry : fallback_templates()) seeds.push_back(entry.source());
  return seeds;
}

std::uint64_t fuzz_rounds() { return 20'000; }

}  // namespace millrace::testing

namespace millrace {
namespace {

const jinja::RenderOptions& options() {
  static const jinja::RenderOptions made = [] {
    const auto messages =
        Json::parse(R"([{"role": "system", "content": "S é"}, {"role": "user", "content": "U\n1"},)"
                    R"( {"role": "assistant", "content": null, "tool_calls": [{"id": "abc123def",)"
                    R"( "function": {"name": "f", "arguments": {"a": [1, "x"], "b": 1.5}}}]},)"
                    R"( {"role": "tool", "content": "{}", "tool_call_id": "abc123def"}])");
    MILLRACE_CHECK(messages.has_value());
    jinja::RenderOptions with;
    with.variables.push_back({"messages", *messages, true});
    with.variables.push_back({"bos_token", "<s>", false});
    with.variables.push_back({"add_generation_prompt", true, false});
    with.now = jinja::Moment{2026, 8, 30, 14, 5, 9};
    with.steps_max = 20'000;
    return with;
  }();
  return made;
}

void check_error(const Error& error) {
  MILLRACE_CHECK(!error.what.empty());
  for (const char byte : error.what) MILLRACE_CHECK(static_cast<unsigned char>(byte) >= 0x20);
}

void check_output(const jinja::Rendered& made) {
  MILLRACE_CHECK(utf8_replace_invalid(made.text) == made.text);
  std::size_t end = 0;
  for (const TextRange& range : made.foreign) {
    MILLRACE_CHECK(range.begin < range.end && range.end <= made.text.size());
    MILLRACE_CHECK(range.begin > end || end == 0);
    end = range.end;
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const auto program =
      jinja::Template::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!program) {
    check_error(program.error());
    return 0;
  }
  const auto first = program->render(options());
  const auto second = program->render(options());
  MILLRACE_CHECK(first.has_value() == second.has_value());
  if (!first) {
    check_error(first.error());
    MILLRACE_CHECK(first.error().what == second.error().what);
    return 0;
  }
  check_output(*first);
  MILLRACE_CHECK(first->text == second->text && first->foreign == second->foreign);
  return 0;
}
