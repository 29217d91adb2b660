// Cuts text into the segments that merges must not cross, by a list of patterns. PCRE2 stays behind
// this interface. Immutable after creation, any thread; each thread brings its own Scratch.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "model/tokenizer/pretokenizer_patterns.h"
#include "runtime/base/function_ref.h"
#include "runtime/base/result.h"

namespace millrace {

class Pretokenizer {
 public:
  // Fails with `unsupported` if PCRE2 refuses a pattern (an old version, a build without Unicode).
  static Result<Pretokenizer> create(const PretokenizerRules& rules);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // Match data and the JIT's stack: for one thread at a time, of any Pretokenizer.
  class Scratch {
   public:
    Scratch();
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class Pretokenizer;
    struct State;
    std::unique_ptr<State> state_;
  };

  // Calls segment(part) for the parts of `text`, in order; together they are `text`. `text` must be
  // valid UTF-8. Time is linear in its length for the patterns of pretokenizer_patterns.cpp. Fails
  // (`unsupported`) if PCRE2 gives up; segments so far are then no result.
  Status split(std::string_view text, Scratch& scratch,
               FunctionRef<void(std::string_view)> segment) const;

 private:
  struct Pattern;  // a compiled one
  Pretokenizer();
  Status split_by(std::size_t pattern, std::string_view text, Scratch& scratch,
                  FunctionRef<void(std::string_view)> segment) const;
  std::vector<std::unique_ptr<Pattern>> patterns_;
};

}  // namespace millrace
