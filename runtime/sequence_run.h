// SequenceRun: what one generation keeps beside the model: sampler, stop strings, text, state hash.
// generate() drives one, generate_many() several in step. One thread at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/sampling/sampler.h"
#include "model/sampling/stop_strings.h"
#include "model/tokenizer/text_stream.h"
#include "runtime/base/hash.h"
#include "runtime/engine.h"
#include "runtime/generate.h"

namespace millrace {

// The state of a run: hash and dump of the logits that were sampled from.
class StateRecorder {
 public:
  // An empty path: only the hash. `io` errors name --dump-state.
  static Result<StateRecorder> create(const std::string& path);
  Status record(std::span<const float> logits);
  Status finish();
  std::uint64_t hash() const noexcept { return hash_.value(); }

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  Error failure();  // of a write; the file is removed
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  StreamHash hash_;
};

// Borrows engine, options and the sink's callable.
class SequenceRun {
 public:
  // Errors of generate() before the first token; the prompt must have passed check_prompt().
  static Result<std::unique_ptr<SequenceRun>> create(Engine& engine, const GenerateOptions& options,
                                                     TextSink text, Session session);

  // What goes through the model next: what the session has not yet of the prompt, then the last
  // token. Empty once finished.
  std::span<const TokenId> pending() const noexcept;
  std::span<const TokenId> prompt() const noexcept { return options_.prompt; }
  Session& session() noexcept { return session_; }
  bool started() const noexcept { return !ids_.empty(); }  // the prompt has gone through
  bool finished() const noexcept { return finished_; }
  // Whether the session stands right before pending(): not if an error took its state along.
  bool resumable() const noexcept {
    return session_.tokens().size() + pending().size() == history_.size();
  }

  // The logits behind pending(): samples the next token, hands out its text, decides whether to go
  // on. `format` and `io` errors.
  Status take(std::span<const float> logits);
  // Ends the run, with the error that ended it, and hands out the rest of the text. The caller adds
  // phases.
  GenerateResult finish(Status status);
  // The session, for the next sequence; the run is over.
  Session release() { return std::move(session_); }

 private:
  SequenceRun(Engine& engine, const GenerateOptions& options, TextSink text, Session session,
              Sampler sampler, StopStrings stop, StateRecorder state);
  void end(FinishReason reason) noexcept;
  void write(std::string_view text);

  Engine& engine_;
  const GenerateOptions& options_;
  TextSink text_;
  Session session_;
  Sampler sampler_;
  StopStrings stop_;
  StateRecorder state_;
  TextStream stream_;
  std::vector<TokenId> history_, ids_;
  std::string all_text_;
  FinishReason reason_ = FinishReason::error;
  bool finished_ = false;
};

}  // namespace millrace
