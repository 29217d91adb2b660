// generate_many(): several generations in step, so that each read of a weight serves all of them.
// Each gives the tokens and the state hash that generate() gives it alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/engine.h"
#include "runtime/generate.h"

namespace millrace {

struct ManyResult {
  // In the order of the options. Of a sequence's phases only tokens and seconds are told: of its
  // prompt until its first token, and from there to its last one, others' work included.
  std::vector<GenerateResult> sequences;
  // The steps that took any prompt, with all tokens that went through, and the others.
  PhaseReport prompt, decode;
  std::uint64_t prompt_steps = 0, decode_steps = 0;

  // As of one run: phases, and the finish of all (error before cancelled before length before stop)
  // with the first error of that kind.
  GenerateResult summary() const;
};

// Told which sequence a text belongs to.
using ManyTextSink = FunctionRef<void(std::size_t, std::string_view)>;

// Runs Plan::sequences at a time; when one ends, the next one's prompt goes through in the step of
// the others. What prompts begin with alike goes through once (prompt_sharing.h), and the others
// take it over, also from a sequence that is decoding or has just ended; where a sliding window or
// a recurrent state has moved on, it goes through again. Nothing may be traced or dumped (`usage`
// error), and echo is not used. Errors of a sequence are its own: bad numbers or a failed sample
// end it alone; failed reads and a cancelled engine end all, those that had not begun included.
// What generate() refuses beforehand is an error of the call.
Result<ManyResult> generate_many(Engine& engine, std::span<const GenerateOptions> sequences,
                                 ManyTextSink text);

}  // namespace millrace
