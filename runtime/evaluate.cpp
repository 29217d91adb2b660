#include "runtime/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "model/sampling/log_probability.h"
#include "runtime/base/counted.h"
#include "runtime/base/json.h"
#include "runtime/routing_recorder.h"

namespace millrace {

namespace {

TokenId argmax(const float* logits, std::size_t count) {
  return static_cast<TokenId>(std::max_element(logits, logits + count) - logits);
}

}  // namespace

Status check_logits_run(const Engine& engine, const LogitsRun& run) {
  if (run.ids.empty()) return Error{ErrorCode::usage, "there are no token ids"};
  MILLRACE_TRY(engine.check_tokens(run.ids, engine.plan().context));
  // The last continued id is not taken through the model.
  const std::size_t positions = run.ids.size() + std::max(1u, run.greedy_count) - 1;
  if (positions > engine.plan().context)
    return Error{ErrorCode::usage, fmt::format("{} and {} continued ones do not fit into {} (raise "
                                               "-c)",
                                               counted(run.ids.size(), "token"), run.greedy_count,
                                               counted(engine.plan().context, "position"))};
  return {};
}

Status run_logits(Engine& engine, const LogitsRun& run,
                  FunctionRef<bool(std::size_t, const float*)> logits,
                  std::vector<TokenId>& greedy_ids) {
  MILLRACE_TRY(check_logits_run(engine, run));
  const std::size_t vocabulary = engine.spec().hparams.vocabulary;
  MILLRACE_ASSIGN(Session session, engine.new_session());
  TokenId next = 0;
  bool stored = true;
  MILLRACE_ASSIGN(const auto trace, RoutingRecorder::start(engine, run.trace_path));
  trace->begin_turn(0, run.ids.size());
  const std::size_t step = run.one_by_one ? 1 : run.ids.size();
  for (std::size_t first = 0; first < run.ids.size(); first += step) {
    MILLRACE_TRY(engine.process(session, std::span(run.ids).subspan(first, step), LogitsWanted::all,
                                [&](std::size_t index, const float* row) {
                                  next = argmax(row, vocabulary);
                                  stored = stored && logits(first + index, row);
                                }));
    if (!stored) return Error{ErrorCode::io, "the logits could not be written"};
  }
  for (std::uint32_t i = 0; i < run.greedy_count; ++i) {
    greedy_ids.push_back(next);
    if (i + 1 == run.greedy_count) break;
    const TokenId last = next;
    MILLRACE_TRY(
        engine.process(session, {&last, 1}, LogitsWanted::last,
                       [&](std::size_t, const float* row) { next = argmax(row, vocabulary); }));
  }
  MILLRACE_TRY(trace->finish());
  return engine.check_files();
}

Status check_windows(const Engine& engine, std::size_t tokens, std::uint32_t window,
                     const std::string& text_name) {
  constexpr std::uint32_t window_min = 4;
  if (window < window_min)
    return Error{ErrorCode::usage,
                 fmt::format("-c {}: a window needs at least {} tokens", window, window_min)};
  if (window > engine.plan().context)
    return Error{ErrorCode::usage, fmt::format("windows of {} tokens: the context holds {} (-c)",
                                               window, engine.plan().context)};
  if (tokens < window)
    return Error{ErrorCode::usage, fmt::format("{} has {}, one window needs {} (-c)", text_name,
                                               counted(tokens, "token"), window)};
  return {};
}

Result<Perplexity> measure_perplexity(
    Engine& engine, std::span<const TokenId> ids, const PerplexityRun& run,
    FunctionRef<void(std::uint32_t, std::uint32_t, double)> progress) {
  const std::uint32_t window = run.window;
  MILLRACE_TRY(check_windows(engine, ids.size(), window));
  const auto available = static_cast<std::uint32_t>(ids.size() / window);
  const std::size_t vocabulary = engine.spec().hparams.vocabulary;
  const auto& special = engine.tokenizer().special();
  Perplexity result;
  result.tokens = ids.size();
  result.windows = run.windows_max == 0 ? available : std::min(run.windows_max, available);
  MILLRACE_ASSIGN(Session session, engine.new_session());
  MILLRACE_ASSIGN(const auto trace, RoutingRecorder::start(engine, run.trace_path));
  double sum = 0;
  double squares = 0;
  for (std::uint32_t index = 0; index < result.windows; ++index) {
    std::vector<TokenId> tokens(ids.begin() + std::ptrdiff_t{index} * window,
                                ids.begin() + std::ptrdiff_t{index + 1} * window);
    const std::vector<TokenId> targets = tokens;
    if (special.add_bos && special.bos) tokens.front() = *special.bos;
    session.clear();
    trace->begin_turn(index, tokens.size());
    MILLRACE_TRY(
        engine.process(session, tokens, LogitsWanted::all, [&](std::size_t at, const float* row) {
          if (at < window / 2 || at + 1 >= window) return;
          const double loss = -log_probability({row, vocabulary}, targets[at + 1]);
          sum += loss;
          squares += loss * loss;
          ++result.scored;
        }));
    progress(index + 1, result.windows, std::exp(sum / static_cast<double>(result.scored)));
  }
  const auto count = static_cast<double>(result.scored);
  const double mean = sum / count;
  result.value = std::exp(mean);
  const double variance = std::max(0.0, squares / count - mean * mean);
  result.uncertainty = result.value * std::sqrt(variance / std::max(1.0, count - 1));
  MILLRACE_TRY(trace->finish());
  MILLRACE_TRY(engine.check_files());
  return result;
}

Result<std::string> read_text_file(const std::string& path) {
  struct Close {
    void operator()(std::FILE* file) const noexcept {
      if (file != stdin) std::fclose(file);
    }
  };
  const std::unique_ptr<std::FILE, Close> file(path == "-" ? stdin
                                                           : std::fopen(path.c_str(), "rb"));
  if (file == nullptr)
    return Error{ErrorCode::io, fmt::format("{}: {}", path, std::strerror(errno))};
  std::string text;
  std::string buffer(std::size_t{1} << 16, '\0');
  for (;;) {
    const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get());
    text.append(buffer, 0, count);
    if (std::ferror(file.get()) != 0)
      return Error{ErrorCode::io, fmt::format("{}: {}", path, std::strerror(errno))};
    if (text.size() > (std::size_t{1} << 30))
      return Error{ErrorCode::usage, fmt::format("{}: more than 1 GiB of text", path)};
    if (count < buffer.size()) return text;
  }
}

Result<std::vector<TokenId>> read_ids_file(const std::string& path) {
  MILLRACE_ASSIGN(const std::string text, read_text_file(path));
  auto parsed = Json::parse(text);
  if (!parsed)
    return Error{ErrorCode::usage,
                 path + ": " + parsed.error().what + " (ids as tokenize --json writes them)"};
  const Json* list = parsed->as_array() != nullptr ? &*parsed : parsed->find("ids");
  if (list == nullptr || list->as_array() == nullptr)
    return Error{ErrorCode::usage, path + ": neither an array of ids nor an object with \"ids\""};
  std::vector<TokenId> ids;
  for (const Json& item : *list->as_array()) {
    std::int64_t id = 0;
    if (!item.get_integer(id) || id < 0 || id > std::numeric_limits<TokenId>::max())
      return Error{ErrorCode::usage, fmt::format("{}: entry {} is no token id", path, ids.size())};
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace millrace
