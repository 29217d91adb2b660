// run --chat: the answer on stdout, reasoning apart from it, and both in the JSON.
#include "tests/cli/gguf_edit.h"
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

// The small model with another template.
std::string with_template(std::string text) {
  constexpr std::size_t bytes = 198;  // of the template in the file
  REQUIRE(text.size() + 4 <= bytes);
  text += "{#" + std::string(bytes - text.size() - 4, ' ') + "#}";
  return GgufEdit(read_file(small_model())).set_text("tokenizer.chat_template", text).bytes();
}

// One whose prompt ends inside the reasoning: whatever it writes is reasoning, since it knows no
// </think>.
std::string thinking_model() {
  return with_template(
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' "
      "}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% "
      "endif "
      "%}");
}

Words chat(const std::string& model) {
  return {"run", model, "--chat", "-p", "Hello", "-n", "12", "--seed", "3", "--ignore-eos"};
}

}  // namespace

TEST_CASE("run --chat prints the answer alone, and JSON has its parts") {
  const Outcome shown = run_program(chat(small_model()));
  CAPTURE(shown.err);
  CHECK(shown.code == 0);
  CHECK_FALSE(contains(shown.out, "Hello"));
  CHECK_FALSE(contains(shown.err, "[reasoning]"));
  Words words = chat(small_model());
  words.erase(words.begin());
  const Json json = run_json(words);
  CHECK(text_at(json, "text") + "\n" == shown.out);
  CHECK(at(json, "reasoning").is_null());
  REQUIRE(at(json, "tool_calls").as_array() != nullptr);
  CHECK(at(json, "tool_calls").as_array()->empty());
}

TEST_CASE("run --chat shows reasoning on stderr, not in the answer; -q does not show it") {
  const TempFolder folder;
  const std::string model = folder.write("m.gguf", thinking_model());
  const Outcome shown = run_program(chat(model));
  CAPTURE(shown.err);
  CHECK(shown.code == 0);
  CHECK(shown.out == "\n");
  CHECK(contains(shown.err, "[reasoning]\n"));
  Words words = chat(model);
  words.erase(words.begin());
  const Json json = run_json(words);
  CHECK(text_at(json, "text").empty());
  const std::string reasoning = text_at(json, "reasoning");
  CHECK(reasoning.size() > 3);
  CHECK(contains(shown.err, reasoning));
  const Outcome quiet = run_program(chat(model) + Words{"-q"});
  CHECK(quiet.out == "\n");
  CHECK(quiet.err.empty());
}

TEST_CASE("run --chat: a message longer than the context is refused with 1") {
  const Outcome outcome = run_program(chat(small_model()) + Words{"-c", "4"});
  CHECK(outcome.code == 1);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "the context holds 4 (raise -c)"));
}

TEST_CASE("run --chat: a hostile template is refused by name and reason, not followed") {
  struct Case {
    const char* text;
    const char* reason;
  };
  const Case cases[] = {
      {"{% macro a(n) %}{% if n > 0 %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ "
       "a(60) }}",
       "does not end within"},
      {"{% macro a(x) %}{{ a(x + 1) }}{% endmacro %}{{ a(0) }}", "nested"},
      {"{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}"
       "{{ n.s }}",
       "grows beyond"},
      {"{{ 'a' * 1000000000000 }}", "grows beyond"},
      {"{{ 'a'.ljust(2000000000) }}", "grows beyond"},
      {"{% for m in messages %}{{ m.content }}", "endfor is missing"},
  };
  for (const Case& hostile : cases) {
    const TempFolder folder;
    const std::string model = folder.write("hostile.gguf", with_template(hostile.text));
    const Outcome outcome = run_program(chat(model));
    CAPTURE(hostile.text, outcome.err);
    CHECK(outcome.code == 3);
    CHECK(outcome.out.empty());
    CHECK(contains(outcome.err, "hostile.gguf"));
    CHECK(contains(outcome.err, "template, line 1: "));
    CHECK(contains(outcome.err, hostile.reason));
  }
}

TEST_CASE("run --chat: a template that makes nothing is told apart from a prompt that is empty") {
  const TempFolder folder;
  const std::string model = folder.write("nothing.gguf", with_template(""));
  for (const Words& more : {Words{}, Words{"-np", "2"}}) {
    const Outcome outcome = run_program(chat(model) + more);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 3);
    CHECK(contains(outcome.err, "nothing.gguf: its chat template makes nothing"));
  }
}
