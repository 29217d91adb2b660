// Templates that are made to hang, to fill memory or to crash: each ends with an error.
#include <catch2/catch.hpp>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "model/chat/jinja/template.h"
#include "runtime/base/limits.h"

namespace millrace {
namespace {

// The bound on steps works alike at any height; a lower one ends sooner.
std::string problem(const std::string& source, std::uint64_t steps_max = 5'000'000) {
  auto program = jinja::Template::parse(source);
  if (!program) return program.error().what;
  jinja::RenderOptions options;
  options.steps_max = steps_max;
  const auto made = program->render(options);
  return made ? std::string() : made.error().what;
}

bool ends_with_a_limit(const std::string& source) {
  const std::string what = problem(source);
  for (const char* sign : {"does not end within", "grows beyond", "bytes of memory", "nested",
                           "more than", "out of range", "malformed", "at most"})
    if (what.find(sign) != std::string::npos) return true;
  UNSCOPED_INFO("\"" << what << "\"");
  return false;
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string made;
  for (std::size_t i = 0; i < times; ++i) made += text;
  return made;
}

TEST_CASE("template limits: a rendering ends after the steps it was given, by default, too") {
  const std::string endless =
      "{% macro a(n) %}{% if n > 0 %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}"
      "{% endmacro %}{{ a(60) }}";
  CHECK(problem(endless, 1000) == "line 1: it does not end within 1000 steps");
  CHECK(problem(endless, limits::template_steps_max) ==
        "line 1: it does not end within 50000000 steps");
  CHECK(problem("{{ 1 }}", 1000).empty());
}

TEST_CASE("template limits: loops in loops end") {
  CHECK(
      ends_with_a_limit("{% for i in range(100000) %}{% for j in range(100000) %}"
                        "{% for k in range(100000) %}{% endfor %}{% endfor %}{% endfor %}"));
  CHECK(
      ends_with_a_limit("{% set l = range(90000)|list %}{% for i in l %}{% for j in l %}x"
                        "{% endfor %}{% endfor %}"));
  CHECK(ends_with_a_limit("{{ range(1000000000) }}"));
  CHECK(ends_with_a_limit("{% for c in 'a' * 60000000 %}{% endfor %}"));
}

TEST_CASE("template limits: recursion ends, straight, through call blocks, and twice a level") {
  CHECK(ends_with_a_limit("{% macro a(x) %}{{ a(x + 1) }}{% endmacro %}{{ a(0) }}"));
  CHECK(
      ends_with_a_limit("{% macro a(x) %}{% for i in [1] %}{% if 1 %}{{ ((((a(x)|string)|trim)"
                        "~ 'x')) }}{% endif %}{% endfor %}{% endmacro %}{{ a(0) }}"));
  CHECK(
      ends_with_a_limit("{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}"
                        "{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}"));
  CHECK(
      ends_with_a_limit("{% macro a(n) %}{% if n > 0 %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}x"
                        "{% endmacro %}{{ a(60) }}"));
  CHECK(
      ends_with_a_limit("{% macro a(n) %}{% macro b() %}{% endmacro %}{% if n > 0 %}"
                        "{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(60) }}"));
}

TEST_CASE("template limits: a text that would be too long is not begun") {
  const std::clock_t start = std::clock();
  for (const char* const source :
       {"{{ 'a' * 1000000000000 }}", "{{ 'ab' * 9223372036854775807 }}",
        "{{ 'a'.ljust(2000000000) }}", "{{ 'a'.rjust(2000000000, 'é') }}",
        "{{ 'a'.center(9223372036854775807) }}", "{{ 'a'|center(2000000000) }}",
        "{{ 'a'.zfill(2000000000) }}"}) {
    CAPTURE(source);
    CHECK(problem(source) == "line 1: a text grows beyond 67108864 bytes");
  }
  // Done byte by byte, each took a second and more.
  CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
  CHECK(problem("{{ 'ab' * 1000000 }}").empty());
}

TEST_CASE("template limits: no text, list or dict grows without end") {
  CHECK(ends_with_a_limit("{{ 'a' * 1000000000000 }}"));
  CHECK(
      ends_with_a_limit("{% set n = namespace(s='a') %}{% for i in range(100) %}"
                        "{% set n.s = n.s ~ n.s %}{% endfor %}"));
  CHECK(
      ends_with_a_limit("{% set n = namespace(s='aaaa', l=[]) %}{% for i in range(22) %}"
                        "{% set n.s = n.s + n.s %}{% endfor %}{% for i in range(1000) %}"
                        "{% set n.l = n.l + [n.s ~ i] %}{% endfor %}"));
  CHECK(ends_with_a_limit("{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}"));
  CHECK(ends_with_a_limit("{{ ('a' * 1000000).replace('', 'b' * 1000) }}"));
  CHECK(ends_with_a_limit("{{ [1] * 1000000000 }}"));
  CHECK(
      ends_with_a_limit("{% set n = namespace(l=[1]) %}{% for i in range(60) %}"
                        "{% set n.l = n.l + n.l %}{% endfor %}"));
  CHECK(
      ends_with_a_limit("{% set d = {} %}{% for i in range(100000) %}{% for j in range(100000) %}"
                        "{{ d.update({i * 100000 + j: 1}) or '' }}{% endfor %}{% endfor %}"));
  CHECK(ends_with_a_limit("{{ 'a'.center(1000000000000) }}"));
  CHECK(ends_with_a_limit("{{ 'a'.zfill(1000000000000) }}"));
  CHECK(ends_with_a_limit("{{ range(100000)|join('a' * 10000) }}"));
  CHECK(ends_with_a_limit("{{ ('\\n' * 1000000)|indent(1000, true, true) }}"));
  CHECK(ends_with_a_limit("{{ ('%s' * 1000) % (('a' * 1000000,) * 1000) }}"));
  CHECK(ends_with_a_limit("{{ ('{0}' * 1000000).format('a' * 1000) }}"));
  CHECK(ends_with_a_limit("{{ '%99999999s' % 1 }}"));
  CHECK(ends_with_a_limit("{{ [1]|batch(1000000000000, 'x')|list }}"));
}

TEST_CASE("template limits: values that hold themselves are refused where they would be printed") {
  CHECK(ends_with_a_limit("{% set l = [] %}{{ l.append(l) }}{{ l }}"));
  CHECK(ends_with_a_limit("{% set l = [] %}{{ l.append(l) }}{{ l|tojson }}"));
  CHECK(ends_with_a_limit("{% set n = namespace() %}{% set n.n = n %}{{ n }}"));
  CHECK(problem("{% set l = [] %}{{ l.append(l) }}{{ l == [l] }}").empty());
  CHECK(
      ends_with_a_limit("{% set n = namespace(l=[]) %}{% for i in range(100000) %}"
                        "{% set n.l = [n.l] %}{% endfor %}{{ n.l }}"));
}

TEST_CASE("template limits: shared lists do not multiply the work") {
  const std::string tripled =
      "{% set n = namespace(l=[1]) %}{% for i in range(90) %}{% set n.l = [n.l, n.l, n.l] %}"
      "{% endfor %}";
  CHECK(ends_with_a_limit(tripled + "{{ n.l|string }}"));
  CHECK(ends_with_a_limit(tripled + "{{ n.l|tojson }}"));
  const std::string texts = "{% set a = 'a' * 30000000 %}{% set b = 'a' * 30000000 %}";
  CHECK(ends_with_a_limit(texts + "{{ ([a] * 100000) == ([b] * 100000) }}"));
  CHECK(ends_with_a_limit(texts + "{% for i in range(100000) %}{{ a == b }}{% endfor %}"));
  CHECK(ends_with_a_limit(texts + "{% for i in range(100000) %}{{ 'b' in a }}{% endfor %}"));
  CHECK(
      ends_with_a_limit("{% set a = 'é' * 30000000 %}{% for i in range(100000) %}"
                        "{{ a[25000000] }}{% endfor %}"));
  CHECK(
      ends_with_a_limit("{% set s = 'A' * 10000000 %}{% for i in range(100000) %}"
                        "{{ s|lower|length }}{% endfor %}"));
}

TEST_CASE("template limits: searching is linear on texts made against it") {
  CHECK(problem("{% set a = 'a' * 3000000 %}{% set b = 'a' * 1500000 ~ 'b' %}"
                "{{ b in a }}{{ a.rfind(b) }}{{ a.count(b) }}{{ a.split(b)|length }}")
            .empty());
}

TEST_CASE("template limits: nesting in the source is bounded, long chains are not nested") {
  for (const auto& [open, close] : std::vector<std::pair<const char*, const char*>>{
           {"(", ")"}, {"[", "]"}, {"not ", ""}, {"-", ""}, {"{1: ", "}"}}) {
    INFO(open);
    CHECK(ends_with_a_limit("{{ " + repeated(open, 5000) + "1" + repeated(close, 5000) + " }}"));
  }
  CHECK(ends_with_a_limit(repeated("{% if 1 %}", 5000)));
  CHECK(ends_with_a_limit("{{ 'a'" + repeated("|trim", 10000) + " }}"));
  CHECK(ends_with_a_limit("{{ 1" + repeated("+1", 10000) + " }}"));
  CHECK(ends_with_a_limit("{{ a" + repeated(".a", 10000) + " }}"));
  CHECK(ends_with_a_limit("{{ " + repeated("1 if 0 else ", 5000) + "2 }}"));
  CHECK(problem("{{ 1" + repeated("~1", 10000) + " }}").empty());
  CHECK(problem("{% if 0 %}" + repeated("{% elif 0 %}", 10000) + "{% endif %}").empty());
  CHECK(ends_with_a_limit(std::string(limits::template_bytes_max + 1, 'x')));
  CHECK(problem(std::string(limits::template_bytes_max, 'x')).empty());
}

TEST_CASE("template limits: numbers at the ends of their range") {
  const std::string least = "(-9223372036854775807 - 1)";
  CHECK(problem("{{ " + least + " // -1 }}") == "line 1: an integer leaves 64 bits");
  CHECK(problem("{{ " + least + " % -1 }}").empty());
  CHECK(problem("{{ " + least + "|abs }}") == "line 1: an integer leaves 64 bits");
  CHECK(problem("{{ -" + least + " }}") == "line 1: an integer leaves 64 bits");
  CHECK(problem("{{ 10 ** 100 }}") == "line 1: an integer leaves 64 bits");
  CHECK(problem("{{ 9223372036854775807 + 1 }}") == "line 1: an integer leaves 64 bits");
  CHECK(problem("{{ 'abc'[::" + least + "] }}{{ 'abc'[" + least + ":9223372036854775807] }}")
            .empty());
  CHECK(problem("{{ [1, 2][9223372036854775807:" + least + ":-2] }}").empty());
  CHECK(problem("{{ [1, 'nan'|float, 0, 'nan'|float]|sort }}").empty());
  CHECK(problem("{{ 99999999999999999999 }}") ==
        "line 1: the number 99999999999999999999 is too large");
}

TEST_CASE("template limits: a template that was ended can be rendered again") {
  auto program = jinja::Template::parse(
      "{% for i in range(n) %}{% for j in range(n) %}{% for k in "
      "range(n) %}{% endfor %}{% endfor %}{% endfor %}done");
  REQUIRE(program.has_value());
  jinja::RenderOptions options;
  options.variables.push_back({"n", 90000, false});
  CHECK(!program->render(options).has_value());
  options.variables[0].value = 3;
  const auto made = program->render(options);
  REQUIRE(made.has_value());
  CHECK(made->text == "done");
}

}  // namespace
}  // namespace millrace
