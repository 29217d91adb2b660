#include "model/tokenizer/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr std::size_t jit_stack_bytes_start = 32 << 10;
constexpr std::size_t jit_stack_bytes_max = 8 << 20;
// The interpreter, which takes over where the JIT gives up, may use this much.
constexpr std::uint32_t interpreter_heap_kib_max = 512 << 10;
constexpr std::uint32_t interpreter_matches_max = 1U << 31;

template <auto function>
struct FreeBy {
  template <class T>
  void operator()(T* object) const noexcept {
    function(object);
  }
};
using Code = std::unique_ptr<pcre2_code, FreeBy<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, FreeBy<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeBy<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeBy<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, FreeBy<pcre2_jit_stack_free>>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  if (pcre2_get_error_message(code, text.data(), text.size()) < 0) return fmt::format("{}", code);
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Pretokenizer::Pattern {
  Code code;
};

struct Pretokenizer::Scratch::State {
  MatchData match{pcre2_match_data_create(1, nullptr)};
  MatchContext jit{pcre2_match_context_create(nullptr)};
  MatchContext interpreter{pcre2_match_context_create(nullptr)};
  // May be null (no JIT in this build of PCRE2): then it is not used.
  JitStack stack{pcre2_jit_stack_create(jit_stack_bytes_start, jit_stack_bytes_max, nullptr)};
};

Pretokenizer::Scratch::Scratch() : state_(std::make_unique<State>()) {
  MILLRACE_CHECK(state_->match && state_->jit && state_->interpreter);  // out of memory otherwise
  if (state_->stack) pcre2_jit_stack_assign(state_->jit.get(), nullptr, state_->stack.get());
  pcre2_set_heap_limit(state_->interpreter.get(), interpreter_heap_kib_max);
  pcre2_set_match_limit(state_->interpreter.get(), interpreter_matches_max);
  pcre2_set_depth_limit(state_->interpreter.get(), interpreter_matches_max);
}
Pretokenizer::Scratch::Scratch(Scratch&&) noexcept = default;
Pretokenizer::Scratch& Pretokenizer::Scratch::operator=(Scratch&&) noexcept = default;
Pretokenizer::Scratch::~Scratch() = default;

Pretokenizer::Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::create(const PretokenizerRules& rules) {
  const CompileContext context{pcre2_compile_context_create(nullptr)};
  MILLRACE_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // whatever this PCRE2 was built with
  Pretokenizer made;
  for (const char* text : rules.patterns) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code code{pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP, &error, &offset, context.get())};
    if (!code)
      return Error{ErrorCode::unsupported,
                   fmt::format("PCRE2 refuses the pre-tokenizer pattern {} at {}: {}", text, offset,
                               message_of(error))};
    // Without a JIT the interpreter does the same work, only slower.
    if (pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) != 0)
      log_debug("PCRE2 has no JIT here; pre-tokenizing is slower");
    made.patterns_.push_back(std::make_unique<Pattern>(Pattern{std::move(code)}));
  }
  return made;
}

Status Pretokenizer::split(std::string_view text, Scratch& scratch,
                           FunctionRef<void(std::string_view)> segment) const {
  return split_by(0, text, scratch, segment);
}

Status Pretokenizer::split_by(std::size_t pattern, std::string_view text, Scratch& scratch,
                              FunctionRef<void(std::string_view)> segment) const {
  if (text.empty()) return {};
  if (pattern == patterns_.size()) {
    segment(text);
    return {};
  }
  const pcre2_code* code = patterns_[pattern]->code.get();
  Scratch::State& state = *scratch.state_;
  const auto match = [&](std::size_t from, std::uint32_t options, const MatchContext& context) {
    // The caller has validated the text; checking it at every match would be quadratic.
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, state.match.get(), context.get());
  };
  std::size_t done = 0;  // segments end here
  std::size_t from = 0;  // the next match is looked for from here
  while (from < text.size()) {
    int found = match(from, 0, state.jit);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)  // a limit of the JIT
      found = match(from, PCRE2_NO_JIT, state.interpreter);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      return Error{ErrorCode::unsupported,
                   fmt::format("text of {} bytes cannot be split into words: PCRE2: {}",
                               text.size(), message_of(found))};
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.match.get());
    const std::size_t begin = range[0];
    const std::size_t end = range[1];
    MILLRACE_CHECK(done <= begin && begin <= end && end <= text.size());
    // An empty match cuts nothing; the search goes on behind the next character.
    from = end;
    if (begin == end) {
      do ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
      continue;
    }
    MILLRACE_TRY(split_by(pattern + 1, text.substr(done, begin - done), scratch, segment));
    MILLRACE_TRY(split_by(pattern + 1, text.substr(begin, end - begin), scratch, segment));
    done = end;
  }
  return split_by(pattern + 1, text.substr(done), scratch, segment);
}

}  // namespace millrace
