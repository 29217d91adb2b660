#include "runtime/sequence_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "io/write_file.h"

namespace millrace {

Result<StateRecorder> StateRecorder::create(const std::string& path) {
  StateRecorder recorder;
  recorder.path_ = path;
  if (path.empty()) return recorder;
  recorder.file_.reset(std::fopen(path.c_str(), "wb"));
  if (recorder.file_ == nullptr)
    return Error{ErrorCode::io, fmt::format("--dump-state {}: {}", path, std::strerror(errno))};
  return recorder;
}

Status StateRecorder::record(std::span<const float> logits) {
  hash_.update(logits.data(), logits.size_bytes());
  if (file_ != nullptr &&
      std::fwrite(logits.data(), sizeof(float), logits.size(), file_.get()) != logits.size())
    return failure();
  return {};
}

Status StateRecorder::finish() {
  if (file_ != nullptr && std::fclose(file_.release()) != 0) return failure();
  return {};
}

Error StateRecorder::failure() {
  Error made{ErrorCode::io, fmt::format("--dump-state {}: {}", path_, std::strerror(errno))};
  file_.reset();
  remove_unfinished(path_);
  return made;
}

Result<std::unique_ptr<SequenceRun>> SequenceRun::create(Engine& engine,
                                                         const GenerateOptions& options,
                                                         TextSink text, Session session) {
  SamplingOptions sampling = options.sampling;
  if (options.ignore_eos)
    for (const TokenId id : engine.tokenizer().end_of_generation())
      sampling.biases.push_back({id, -std::numeric_limits<float>::infinity()});
  MILLRACE_ASSIGN(
      Sampler sampler,
      Sampler::create(std::move(sampling), engine.spec().hparams.vocabulary, engine.kernels().exp));
  MILLRACE_ASSIGN(StopStrings stop, StopStrings::create(options.stop));
  MILLRACE_ASSIGN(StateRecorder state, StateRecorder::create(options.state_path));
  return std::unique_ptr<SequenceRun>(new SequenceRun(engine, options, text, std::move(session),
                                                      std::move(sampler), std::move(stop),
                                                      std::move(state)));
}

SequenceRun::SequenceRun(Engine& engine, const GenerateOptions& options, TextSink text,
                         Session session, Sampler sampler, StopStrings stop, StateRecorder state)
    : engine_(engine),
      options_(options),
      text_(text),
      session_(std::move(session)),
      sampler_(std::move(sampler)),
      stop_(std::move(stop)),
      state_(std::move(state)),
      stream_(engine.tokenizer()) {
  const std::size_t room = session_.context() - options.prompt.size() + 1;
  const std::size_t most = std::min<std::size_t>(options.tokens_max, room);
  history_.reserve(options.prompt.size() + most);
  history_ = options.prompt;
  ids_.reserve(most);
}

std::span<const TokenId> SequenceRun::pending() const noexcept {
  if (finished_) return {};
  if (!started()) return std::span(options_.prompt).subspan(session_.tokens().size());
  return {&history_.back(), 1};
}

Status SequenceRun::take(std::span<const float> logits) {
  MILLRACE_TRY(state_.record(logits));
  MILLRACE_ASSIGN(const TokenId id, sampler_.sample(logits, history_, history_.size()));
  history_.push_back(id);
  ids_.push_back(id);
  if (!options_.ignore_eos && engine_.tokenizer().is_end_of_generation(id)) {
    end(FinishReason::stop);
    return {};
  }
  if (options_.control != nullptr && engine_.tokenizer().is_control(id)) {
    write(stop_.flush());  // a stop string does not reach over it
    (*options_.control)(engine_.tokenizer().token_text(id));
  }
  write(stop_.push(stream_.push(id)));
  if (stop_.stopped()) end(FinishReason::stop);
  // Its token is not in the session yet: it would need one more position.
  else if (ids_.size() >= options_.tokens_max || history_.size() > session_.context())
    end(FinishReason::length);
  return {};
}

GenerateResult SequenceRun::finish(Status status) {
  GenerateResult result;
  if (status) status = state_.finish();
  if (!status) {
    end(status.error().code == ErrorCode::cancelled ? FinishReason::cancelled
                                                    : FinishReason::error);
    result.error = std::move(status).error();
  }
  write(stop_.push(stream_.flush()));
  write(stop_.flush());
  result.text = std::move(all_text_);
  result.ids = std::move(ids_);
  result.finish = reason_;
  result.seed = sampler_.seed();
  result.state_hash = state_.hash();
  finished_ = true;
  return result;
}

void SequenceRun::end(FinishReason reason) noexcept {
  finished_ = true;
  reason_ = reason;
}

void SequenceRun::write(std::string_view text) {
  if (text.empty()) return;
  all_text_ += text;
  text_(text);
}

}  // namespace millrace
