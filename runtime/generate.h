// generate(): prompt in, text out, with everything that the report needs measured on the way.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/sampling/sampler.h"
#include "runtime/base/function_ref.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/engine.h"

namespace millrace {

// Called with the text of a control token, which writes nothing.
using ControlSink = FunctionRef<void(std::string_view)>;

struct GenerateOptions {
  std::vector<TokenId> prompt;  // not empty
  std::uint32_t tokens_max = 128;
  // Decoded before what the decode phase measures, so that the cache is warm; of tokens_max.
  std::uint32_t warmup_tokens = 0;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  const std::atomic<bool>* cancel = nullptr;  // of this one of generate_many(); may be null
  // Told of control tokens, in order with the text; null: nobody. See OutputParser.
  const ControlSink* control = nullptr;
  std::string echo;        // handed to the text sink first, once nothing can be refused any more
  std::string trace_path;  // routing, CSV; empty: none
  std::string state_path;  // logits of every sampled step, raw float32; empty: none
};

enum class FinishReason : std::uint8_t { stop, length, cancelled, error };
const char* finish_reason_name(FinishReason reason) noexcept;

// One phase of a run: the prompt (its sampled token included) or the decoding of the others.
struct PhaseReport {
  std::uint64_t tokens = 0;
  double seconds = 0;
  EngineCounters counters;  // of the phase alone
  // From the counters: the sum of what the activity clock tells.
  void set_seconds() noexcept {
    const ActivityTimes& times = counters.times;
    seconds = static_cast<double>(times.compute_ns + times.stalled_ns + times.other_ns) * 1e-9;
  }
  double tokens_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
};

struct GenerateResult {
  std::string text;
  std::vector<TokenId> ids;  // generated, the end token included
  FinishReason finish = FinishReason::error;
  std::uint32_t seed = 0;
  std::uint64_t state_hash =
      0;  // XXH3-64 of the float32 logits of every step sampled from, in order
  PhaseReport prompt, decode;
  // Of the prompt: taken over from another sequence of generate_many() instead of computed.
  std::uint64_t tokens_taken_over = 0;
  std::optional<Error> error;  // finish error or cancelled
};

// Called with text as it becomes certain.
using TextSink = FunctionRef<void(std::string_view)>;

// What can be refused before a model is read: nothing asked for, sampling values and stop strings
// that make no sense. `usage` errors that name the flag. generate() checks the same.
Status check_options(const GenerateOptions& options);

// A user's text as the model's tokens: with the begin token, without the end token that would end
// the text before it begins. Needs the tokenizer (Engine::require_tokenizer).
Result<std::vector<TokenId>> encode_prompt(const Engine& engine, const std::string& text);

// What can be refused before the trunk is read: an empty prompt, one longer than the context, ids
// outside the vocabulary. generate() checks the same.
Status check_prompt(const Engine& engine, std::span<const TokenId> prompt);

// Runs in a new session of the engine. Failing before the first token (prompt longer than the
// context, bad sampling options, no memory, trace or state file) is an error; failing later is a
// result with finish `error` and what was generated.
Result<GenerateResult> generate(Engine& engine, const GenerateOptions& options, TextSink text);

}  // namespace millrace
