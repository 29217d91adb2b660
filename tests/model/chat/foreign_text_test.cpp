// Which parts of an output come from the conversation.
#include <catch2/catch.hpp>
#include <string>

#include "model/chat/jinja/template.h"

namespace millrace {
namespace {

// The output with its foreign parts in braces: "a{b}c".
std::string marked(const std::string& source, const Json& value) {
  auto program = jinja::Template::parse(source);
  REQUIRE(program.has_value());
  jinja::RenderOptions options;
  options.variables.push_back({"x", value, true});
  options.variables.push_back({"own", "OWN", false});
  const auto made = program->render(options);
  INFO((made ? std::string() : made.error().what));
  REQUIRE(made.has_value());
  std::string shown;
  std::size_t at = 0;
  for (const TextRange& range : made->foreign) {
    REQUIRE(range.begin < range.end);
    REQUIRE((range.begin > at || at == 0));
    shown += made->text.substr(at, range.begin - at) + "{";
    shown += made->text.substr(range.begin, range.end - range.begin) + "}";
    at = range.end;
  }
  return shown + made->text.substr(at);
}

TEST_CASE("foreign text: what the template writes is not, what it is given is") {
  CHECK(marked("a{{ x }}b{{ own }}", "U") == "a{U}bOWN");
  CHECK(marked("{{ 'a' + x + 'b' ~ x }}", "U") == "a{U}b{U}");
  CHECK(marked("{{ x ~ x }}", "U") == "{UU}");
  CHECK(marked("{{ 1 }}{{ x|length }}", "U") == "11");
}

TEST_CASE("foreign text: every operation carries the mark along") {
  CHECK(marked("{{ ('[' ~ x ~ ']')|upper }}", "é u") == "[{É U}]");
  CHECK(marked("{{ ('  ' ~ x ~ '  ')|trim }}", "U") == "{U}");
  CHECK(marked("{{ ('a-' ~ x ~ '-b').split('-')|join('+') }}", "U") == "a+{U}+b");
  CHECK(marked("{{ x.replace('b', own) }}", "abc") == "{a}OWN{c}");
  CHECK(marked("{{ 'abc'.replace('b', x) }}", "U") == "a{U}c");
  CHECK(marked("{{ ('ab' ~ x)[::-1] }}{{ ('ab' ~ x)[1:3] }}", "UV") == "{VU}bab{U}");
  CHECK(marked("{{ (own ~ x)[3] }}{{ (own ~ x)[0] }}", "U") == "{U}O");
  CHECK(marked("{{ '%s=%s' % (own, x) }}{{ '{}'.format(x) }}", "U") == "OWN={UU}");
  CHECK(marked("{{ (own ~ '\\n' ~ x)|indent(2) }}", "U") == "OWN\n  {U}");
  CHECK(marked("{% set y %}<{{ x }}>{% endset %}{{ y }}", "U") == "<{U}>");
  CHECK(marked("{% filter title %}a {{ x }}{% endfilter %}", "uv") == "A {Uv}");
  CHECK(marked("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}", "U") == "<{U}>");
  CHECK(marked("{% for c in x %}{{ c }},{% endfor %}", "UV") == "{U},{V},");
  CHECK(marked("{{ x|e }}", "<") == "&lt;");  // what stands for it is the template's own
}

TEST_CASE("foreign text: JSON marks the texts in it, not its own signs") {
  Json value = Json::object();
  value.set("k", "a\"b").set("n", 1);
  CHECK(marked("{{ x|tojson }}", value) == "{\"{k}\": \"{a\\\"b}\", \"{n}\": 1}");
  CHECK(marked("{{ [x.k] }}", value) == "['{a\"b}']");
}

}  // namespace
}  // namespace millrace
