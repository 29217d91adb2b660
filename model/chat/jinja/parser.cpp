#include "model/chat/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/chat/jinja/expression_parser.h"
#include "model/chat/jinja/lexer.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace::jinja {

// the state

namespace {

std::string_view kind_name(TokenKind kind) {
  switch (kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::variable_begin:
      return "{{";
    case TokenKind::variable_end:
      return "}}";
    case TokenKind::block_begin:
      return "{%";
    case TokenKind::block_end:
      return "%}";
    case TokenKind::name:
      return "a name";
    case TokenKind::string:
      return "a string";
    case TokenKind::integer:
    case TokenKind::floating:
      return "a number";
    case TokenKind::symbol:
      return "a symbol";
    case TokenKind::end:
      break;
  }
  return "the end of the template";
}

}  // namespace

bool ParserState::take_symbol(std::string_view text) {
  if (!at_symbol(text)) return false;
  advance();
  return true;
}

bool ParserState::take_name(std::string_view text) {
  if (!at_name(text)) return false;
  advance();
  return true;
}

Status ParserState::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) return unexpected(text);
  return {};
}

Status ParserState::expect_name(std::string_view text) {
  if (!take_name(text)) return unexpected(text);
  return {};
}

Status ParserState::expect(TokenKind kind) {
  if (!at(kind)) return unexpected(kind_name(kind));
  advance();
  return {};
}

Result<std::string> ParserState::take_any_name() {
  if (!at(TokenKind::name)) return unexpected("a name");
  std::string name = current().text;
  advance();
  return name;
}

Error ParserState::error(std::string_view what) const {
  return Error{ErrorCode::format, fmt::format("line {}: {}", current().line, what)};
}

Error ParserState::unexpected(std::string_view wanted) const {
  const bool shown = at(TokenKind::name) || at(TokenKind::symbol);
  return error(fmt::format(
      "expected {}, found {}", wanted,
      shown ? "'" + printable(current().text, 40) + "'" : std::string(kind_name(current().kind))));
}

Symbol ParserState::symbol(const std::string& name) {
  const auto [found, added] = symbols_.emplace(name, static_cast<Symbol>(symbol_names_.size()));
  if (added) symbol_names_.push_back(name);
  return found->second;
}

Status ParserState::enter() {
  ++nesting_;
  if (nesting_ > limits::template_nesting_max)
    return error(fmt::format("nested deeper than {}", limits::template_nesting_max));
  return {};
}

// statements

namespace {

using StatementPtr = std::unique_ptr<Statement>;
using Names = std::vector<std::string_view>;

constexpr std::array refused_tags = {
    std::string_view("include"), std::string_view("import"),    std::string_view("from"),
    std::string_view("extends"), std::string_view("block"),     std::string_view("autoescape"),
    std::string_view("trans"),   std::string_view("pluralize"), std::string_view("debug"),
};
constexpr std::array constants = {std::string_view("true"),  std::string_view("false"),
                                  std::string_view("none"),  std::string_view("True"),
                                  std::string_view("False"), std::string_view("None")};

class StatementParser {
 public:
  explicit StatementParser(Tokens tokens) : state_(std::move(tokens)), expressions_(state_) {}

  Result<Program> run() {
    Program program;
    MILLRACE_CHECK(state_.symbol("caller") == caller_symbol);
    MILLRACE_CHECK(state_.symbol("loop") == loop_symbol);
    MILLRACE_ASSIGN(program.body, body({}));
    program.symbols = state_.take_symbols();
    return program;
  }

 private:
  StatementPtr make(StatementKind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = state_.current().line;
    return made;
  }

  // Statements up to one of the tags in `ends`, whose name is then the current token. Without
  // `ends`, up to the end of the template.
  Result<Body> body(const Names& ends) {
    MILLRACE_TRY(state_.enter());
    Body statements;
    while (!state_.at(TokenKind::end)) {
      if (state_.at(TokenKind::data)) {
        StatementPtr data = make(StatementKind::data);
        data->text = make_text(state_.current().text);
        state_.advance();
        statements.push_back(std::move(data));
      } else if (state_.at(TokenKind::variable_begin)) {
        MILLRACE_ASSIGN(StatementPtr output, output_statement());
        statements.push_back(std::move(output));
      } else {
        MILLRACE_TRY(state_.expect(TokenKind::block_begin));
        if (!state_.at(TokenKind::name)) return state_.unexpected("the name of a tag");
        if (std::find(ends.begin(), ends.end(), state_.current().text) != ends.end()) {
          state_.leave();
          return statements;
        }
        MILLRACE_ASSIGN(StatementPtr tag, tag_statement());
        statements.push_back(std::move(tag));
      }
    }
    if (!ends.empty())
      return state_.error(fmt::format("the template ends where {} is missing", ends.back()));
    state_.leave();
    return statements;
  }

  // The rest of the current tag is only "%}"; then a body, then the tag `end`, passed over.
  Result<Body> closed_body(std::string_view end) {
    MILLRACE_TRY(state_.expect(TokenKind::block_end));
    MILLRACE_ASSIGN(Body statements, body({end}));
    state_.advance();
    // Jinja lets the name of a macro or block stand behind its end.
    if (state_.at(TokenKind::name)) state_.advance();
    MILLRACE_TRY(state_.expect(TokenKind::block_end));
    return statements;
  }

  Result<StatementPtr> output_statement() {
    StatementPtr output = make(StatementKind::output);
    state_.advance();
    MILLRACE_ASSIGN(output->expression, expressions_.expression_or_tuple());
    MILLRACE_TRY(state_.expect(TokenKind::variable_end));
    return output;
  }

  Result<StatementPtr> tag_statement() {
    const std::string tag = state_.current().text;
    if (tag == "if") return if_statement();
    if (tag == "for") return for_statement();
    if (tag == "set") return set_statement();
    if (tag == "macro") return macro_statement();
    if (tag == "call") return call_block();
    if (tag == "filter") return filter_block();
    if (tag == "with") return with_statement();
    if (tag == "generation") return generation();
    if (tag == "break" || tag == "continue") return loop_control(tag);
    const bool known =
        std::find(refused_tags.begin(), refused_tags.end(), tag) != refused_tags.end();
    if (known)
      return state_.error(fmt::format("the tag '{}' is not supported in chat templates", tag));
    return state_.error(fmt::format("unexpected tag '{}'", printable(tag, 40)));
  }

  Result<StatementPtr> if_statement() {
    StatementPtr made = make(StatementKind::if_);
    while (true) {
      state_.advance();  // if or elif
      Branch branch;
      MILLRACE_ASSIGN(branch.condition, expressions_.expression_or_tuple());
      MILLRACE_TRY(state_.expect(TokenKind::block_end));
      MILLRACE_ASSIGN(branch.body, body({"elif", "else", "endif"}));
      made->branches.push_back(std::move(branch));
      if (state_.at_name("elif")) continue;
      if (state_.take_name("else")) {
        MILLRACE_ASSIGN(made->otherwise, closed_body("endif"));
        return made;
      }
      state_.advance();
      MILLRACE_TRY(state_.expect(TokenKind::block_end));
      return made;
    }
  }

  Result<StatementPtr> for_statement() {
    StatementPtr made = make(StatementKind::for_);
    state_.advance();
    MILLRACE_ASSIGN(made->target, target(false));
    MILLRACE_TRY(state_.expect_name("in"));
    MILLRACE_ASSIGN(made->expression, expressions_.expression_or_tuple(false));
    if (state_.take_name("if")) {
      MILLRACE_ASSIGN(made->condition, expressions_.expression());
    }
    if (state_.at_name("recursive")) return state_.error("recursive loops are not supported");
    MILLRACE_TRY(state_.expect(TokenKind::block_end));
    ++loops_;
    MILLRACE_ASSIGN(made->body, body({"else", "endfor"}));
    --loops_;
    if (state_.take_name("else")) {
      MILLRACE_ASSIGN(made->otherwise, closed_body("endfor"));
      return made;
    }
    state_.advance();
    MILLRACE_TRY(state_.expect(TokenKind::block_end));
    return made;
  }

  Result<Symbol> variable(TextRef* name) {
    if (state_.at(TokenKind::name) &&
        std::find(constants.begin(), constants.end(), state_.current().text) != constants.end())
      return state_.error(fmt::format("'{}' cannot be assigned to", state_.current().text));
    MILLRACE_ASSIGN(const std::string text, state_.take_any_name());
    if (name != nullptr) *name = make_text(text);
    return state_.symbol(text);
  }

  Result<Target> target(bool with_attribute) {
    Target made;
    const bool parenthesis = state_.take_symbol("(");
    MILLRACE_ASSIGN(const Symbol first, variable(&made.name));
    made.symbols.push_back(first);
    if (with_attribute && state_.take_symbol(".")) {
      MILLRACE_ASSIGN(const std::string attribute, state_.take_any_name());
      made.attribute = make_text(attribute);
    }
    while (made.attribute == nullptr && state_.take_symbol(",")) {
      made.unpacks = true;
      if (!state_.at(TokenKind::name) || state_.at_name("in")) break;
      MILLRACE_ASSIGN(const Symbol next, variable(nullptr));
      made.symbols.push_back(next);
    }
    if (parenthesis) MILLRACE_TRY(state_.expect_symbol(")"));
    return made;
  }

  Result<StatementPtr> set_statement() {
    StatementPtr made = make(StatementKind::set);
    state_.advance();
    MILLRACE_ASSIGN(made->target, target(true));
    if (state_.take_symbol("=")) {
      MILLRACE_ASSIGN(made->expression, expressions_.expression_or_tuple());
      MILLRACE_TRY(state_.expect(TokenKind::block_end));
      return made;
    }
    made->kind = StatementKind::set_block;
    if (state_.take_symbol("|")) {
      MILLRACE_ASSIGN(made->expression, expressions_.block_filters());
    }
    MILLRACE_ASSIGN(made->body, closed_body("endset"));
    return made;
  }

  Status parameters(Statement& owner) {
    MILLRACE_TRY(state_.expect_symbol("("));
    while (!state_.at_symbol(")")) {
      Parameter parameter;
      MILLRACE_ASSIGN(parameter.symbol, variable(&parameter.name));
      if (state_.take_symbol("=")) {
        MILLRACE_ASSIGN(parameter.fallback, expressions_.expression());
      } else if (!owner.parameters.empty() && owner.parameters.back().fallback != nullptr) {
        return state_.error("a parameter without a default follows one with a default");
      }
      owner.parameters.push_back(std::move(parameter));
      if (!state_.take_symbol(",")) break;
    }
    return state_.expect_symbol(")");
  }

  // A body that `break` and `continue` do not reach out of.
  Result<Body> function_body(std::string_view end) {
    const unsigned outer_loops = loops_;
    loops_ = 0;
    auto parsed = closed_body(end);
    loops_ = outer_loops;
    return parsed;
  }

  Result<StatementPtr> macro_statement() {
    StatementPtr made = make(StatementKind::macro);
    state_.advance();
    MILLRACE_ASSIGN(made->symbol, variable(&made->name));
    MILLRACE_TRY(parameters(*made));
    MILLRACE_ASSIGN(made->body, function_body("endmacro"));
    return made;
  }

  Result<StatementPtr> call_block() {
    StatementPtr made = make(StatementKind::call_block);
    state_.advance();
    if (state_.at_symbol("(")) MILLRACE_TRY(parameters(*made));
    made->name = make_text("caller");
    MILLRACE_ASSIGN(made->expression, expressions_.expression());
    if (made->expression->kind != ExpressionKind::call)
      return state_.error("a call block needs the call of a macro");
    MILLRACE_ASSIGN(made->body, function_body("endcall"));
    return made;
  }

  Result<StatementPtr> filter_block() {
    StatementPtr made = make(StatementKind::filter_block);
    state_.advance();
    MILLRACE_ASSIGN(made->expression, expressions_.block_filters());
    MILLRACE_ASSIGN(made->body, closed_body("endfilter"));
    return made;
  }

  Result<StatementPtr> with_statement() {
    StatementPtr made = make(StatementKind::with);
    state_.advance();
    while (!state_.at(TokenKind::block_end)) {
      Target variable_target;
      MILLRACE_ASSIGN(variable_target, target(false));
      MILLRACE_TRY(state_.expect_symbol("="));
      MILLRACE_ASSIGN(ExpressionPtr value, expressions_.expression());
      made->assignments.emplace_back(std::move(variable_target), std::move(value));
      if (!state_.take_symbol(",")) break;
    }
    MILLRACE_ASSIGN(made->body, closed_body("endwith"));
    return made;
  }

  // Marks what a model wrote, for training; here it only stands around its body.
  Result<StatementPtr> generation() {
    StatementPtr made = make(StatementKind::scoped);
    state_.advance();
    MILLRACE_ASSIGN(made->body, closed_body("endgeneration"));
    return made;
  }

  Result<StatementPtr> loop_control(std::string_view tag) {
    if (loops_ == 0) return state_.error(fmt::format("'{}' outside of a loop", tag));
    StatementPtr made = make(tag == "break" ? StatementKind::break_ : StatementKind::continue_);
    state_.advance();
    MILLRACE_TRY(state_.expect(TokenKind::block_end));
    return made;
  }

  ParserState state_;
  ExpressionParser expressions_;
  unsigned loops_ = 0;
};

}  // namespace

Result<Program> parse(std::string_view source) {
  MILLRACE_ASSIGN(Tokens tokens, tokenize(source));
  return StatementParser(std::move(tokens)).run();
}

}  // namespace millrace::jinja
