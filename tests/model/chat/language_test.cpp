// The language against the outputs of Jinja2 itself (tests/oracles/chat).
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>

#include "model/chat/jinja/template.h"
#include "runtime/base/json.h"

namespace millrace {
namespace {

Json read_oracle() {
  std::ifstream file(std::string(MILLRACE_CHAT_ORACLES) + "/language.json");
  std::stringstream text;
  text << file.rdbuf();
  auto parsed = Json::parse(text.str());
  REQUIRE(parsed.has_value());
  return *parsed;
}

Result<jinja::Rendered> render(const std::string& source, const jinja::RenderOptions& options) {
  MILLRACE_ASSIGN(const jinja::Template program, jinja::Template::parse(source));
  return program.render(options);
}

jinja::RenderOptions options_of(const Json& oracle) {
  jinja::RenderOptions options;
  options.now = jinja::Moment{2026, 8, 30, 14, 5, 9};
  for (const auto& [name, value] : *oracle.find("variables")->as_object())
    options.variables.push_back({name, value, true});
  return options;
}

TEST_CASE("template language: every case prints what Jinja2 prints, or is an error as there") {
  const Json oracle = read_oracle();
  const jinja::RenderOptions options = options_of(oracle);
  const Json::Array& cases = *oracle.find("cases")->as_array();
  REQUIRE(cases.size() > 1500);
  for (const Json& entry : cases) {
    const std::string& source = *entry.as_array()->at(0).as_string();
    const auto made = render(source, options);
    INFO(source);
    if (entry.as_array()->size() == 1) {
      CHECK(!made.has_value());
    } else {
      INFO((made ? std::string() : made.error().what));
      REQUIRE(made.has_value());
      CHECK(made->text == *entry.as_array()->at(1).as_string());
    }
  }
}

TEST_CASE("template language: an error says the line and the name") {
  const auto what = [](const char* source) {
    const auto made = render(source, {});
    REQUIRE(!made.has_value());
    return made.error().what;
  };
  CHECK(what("a\n{{ x|nope }}") == "line 2: unknown filter 'nope'");
  CHECK(what("a\n\n{{ x is nope }}") == "line 3: unknown test 'nope'");
  CHECK(what("{{ nope() }}") == "line 1: 'nope' is undefined");
  CHECK(what("{{ {}.a.b }}") == "line 1: 'dict' object has no attribute 'a'");
  CHECK(what("\n{% include 'x' %}") ==
        "line 2: the tag 'include' is not supported in chat templates");
  CHECK(what("{% for x in [] %}") == "line 1: the template ends where endfor is missing");
  CHECK(what("{{ lipsum() }}") ==
        "line 1: lipsum: this function is not available in chat templates");
  CHECK(what("{% for a in [] recursive %}{% endfor %}") ==
        "line 1: recursive loops are not supported");
  CHECK(what("{% macro f(a) %}{% endmacro %}\n{{ f(1, 2) }}") ==
        "line 2: macro 'f' takes 1 arguments, not 2");
}

TEST_CASE("template language: what a template raises is the caller's error, without its escapes") {
  const auto made = render("{{ raise_exception('no \x1b[31m tools') }}", {});
  REQUIRE(!made.has_value());
  CHECK(made.error().code == ErrorCode::usage);
  CHECK(made.error().what == "line 1: the template refuses the conversation: no \\x1b[31m tools");
}

TEST_CASE("template language: no date given, no function that tells it") {
  const auto made = render("{{ strftime_now is defined }}", {});
  REQUIRE(made.has_value());
  CHECK(made->text == "False");
  CHECK(!render("{{ strftime_now('%Y') }}", {}).has_value());
}

TEST_CASE("template language: messages never carry bytes that a terminal obeys") {
  for (const std::string source :
       {"{{ \x1b }}", "{% \x1b %}", "{{ x|\x1b }}", "{{ a\x1b }}", "{{ '\\x1b' is nope }}",
        "{{ x['\\x1b[31m'].y }}", "{{ {}['\\x1b[31m']() }}", "{{ 'a'|map('\\x1b')|list }}",
        "{{ strftime_now('%\x1b') }}", "{{ '%\\x1b' % 1 }}", "{{ '{\\x1b}'.format(1) }}",
        "{{ f(\x1b=1) }}", "{{ namespace(**\x1b) }}", "{% set x.\x1b = 1 %}"}) {
    jinja::RenderOptions options;
    options.now = jinja::Moment{};
    const auto made = render(source, options);
    INFO(source);
    REQUIRE(!made.has_value());
    CHECK(made.error().what.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("template language: invalid UTF-8 in the source or the values becomes U+FFFD") {
  jinja::RenderOptions options;
  options.variables.push_back({"x", "a\xFF\xE2\x82", true});
  const auto made = render("\xC0{{ x }}{{ x|length }}", options);
  REQUIRE(made.has_value());
  CHECK(made->text == "\uFFFDa\uFFFD\uFFFD\uFFFD4");
}

}  // namespace
}  // namespace millrace
