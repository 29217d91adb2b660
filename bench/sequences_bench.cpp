// Speed of one sequence and of several: as bench/peers measures a peer, with the same tokens and
// the same JSON keys, so that compare_peers.py sets both side by side. Greedy; one JSON object on
// stdout.
//
//   sequences_bench [-t THREADS] [-ub TOKENS] [-w TOKENS] MODEL MODE NUMBERS...
//     decode  TOKENS [PROMPT]           one sequence
//     prefill TOKENS [TOKENS ...]       one prompt of each length, in an empty session
//     batch   SEQUENCES TOKENS          each with a prompt of 8 of its own
//     agents  SEQUENCES PREFIX TOKENS   a shared prefix, then decode in step
//     turns   SEQUENCES PREFIX TURNS GENERATED GIVEN
//   -w: first a prompt of so many, which is forgotten: its experts are in memory then.
//   What is no number, or one too many, is refused; a result that cannot be written exits with 1.
//   MODEL may be - for the embedded one. `ids_hash`: of all tokens that came out, so that speed
//   cannot come from doing less.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/command_line.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/embedded_model.h"
#include "runtime/engine.h"

namespace {

using namespace millrace;
using bench::die;
using bench::must;
using Numbers = std::vector<std::uint32_t>;

class Stopwatch {
 public:
  double seconds() const { return static_cast<double>(system_clock().now_ns() - start_ns_) * 1e-9; }

 private:
  std::uint64_t start_ns_ = system_clock().now_ns();
};

// Tokens drawn evenly from the vocabulary, the same for every peer.
class Tokens {
 public:
  explicit Tokens(std::uint32_t vocabulary) : vocabulary_(vocabulary) {}
  TokenId next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<TokenId>((state_ >> 33) % vocabulary_);
  }
  std::vector<TokenId> draw(std::size_t count) {
    std::vector<TokenId> ids(count);
    for (TokenId& id : ids) id = next();
    return ids;
  }

 private:
  std::uint64_t vocabulary_;
  std::uint64_t state_ = 7;
};

// Some sessions of an engine, and the ids that its logits make likeliest.
class Measured {
 public:
  explicit Measured(const EngineConfig& config)
      : engine_(must(Engine::create(config, progress_, cancel_))),
        tokens_(engine_->spec().hparams.vocabulary) {
    for (std::uint32_t i = 0; i < config.sequences; ++i)
      sessions_.push_back(must(engine_->new_session()));
    now_.resize(config.sequences);
  }

  double load_seconds() const { return engine_->load_seconds(); }
  std::uint32_t threads() const { return engine_->plan().threads; }
  const char* kernels() const { return engine_->kernels().name; }
  std::uint64_t ids_hash() const { return hash_.value(); }

  void clear(std::size_t sequence) { sessions_[sequence].clear(); }

  double prefill(std::size_t sequence, std::size_t count) {
    const std::vector<TokenId> ids = tokens_.draw(count);
    const Stopwatch watch;
    step({{&sessions_[sequence], ids}}, sequence);
    return watch.seconds();
  }

  // All sequences go on from what the first one holds.
  void share_first() {
    for (std::size_t i = 1; i < sessions_.size(); ++i)
      sessions_[i].take_over(sessions_[0], sessions_[0].tokens().size());
  }

  // In step, beginning with drawn tokens.
  double decode(std::size_t count) {
    now_ = tokens_.draw(sessions_.size());
    const Stopwatch watch;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<SequenceTokens> each;
      for (std::size_t s = 0; s < sessions_.size(); ++s)
        each.push_back({&sessions_[s], {&now_[s], 1}});
      step(each, 0);
    }
    return watch.seconds();
  }

  // The same number of drawn tokens to each.
  double give(std::size_t count) {
    const Stopwatch watch;
    const std::vector<TokenId> ids = tokens_.draw(count * sessions_.size());
    std::vector<SequenceTokens> each;
    for (std::size_t s = 0; s < sessions_.size(); ++s)
      each.push_back({&sessions_[s], std::span(ids).subspan(s * count, count)});
    step(each, 0);
    return watch.seconds();
  }

 private:
  void step(const std::vector<SequenceTokens>& each, std::size_t first) {
    const std::size_t vocabulary = engine_->spec().hparams.vocabulary;
    const Status done = engine_->process_together(each, [&](std::size_t i, const float* row) {
      next_.push_back(static_cast<TokenId>(std::max_element(row, row + vocabulary) - row));
      now_[first + i] = next_.back();
    });
    if (!done) die(done.error().what);
    hash_.update(next_.data(), next_.size() * sizeof(TokenId));
    next_.clear();
  }

  ProgressLine progress_{false};
  std::atomic<bool> cancel_ = false;
  std::unique_ptr<Engine> engine_;
  Tokens tokens_;
  std::vector<Session> sessions_;
  std::vector<TokenId> now_, next_;
  StreamHash hash_;
};

Json rate(double count, double seconds) {
  Json json = Json::object();
  return json.set("tokens", count)
      .set("seconds", seconds)
      .set("tokens_per_second", count / seconds);
}

std::uint32_t prompt_tokens(const Numbers& n) { return n.size() > 1 ? n[1] : 5; }

void warm(Measured& model, std::uint32_t count) {
  if (count == 0) return;
  model.prefill(0, count);
  model.clear(0);
}

void run_decode(Measured& model, const Numbers& n, Json& out) {
  const std::uint32_t prompt = prompt_tokens(n);
  out.set("prefill", rate(prompt, model.prefill(0, prompt)));
  out.set("decode", rate(n[0], model.decode(n[0])));
}

void run_prefill(Measured& model, const Numbers& n, Json& out) {
  model.prefill(0, 64);  // pages and caches warm
  Json list = Json::array();
  for (const std::uint32_t count : n) {
    model.clear(0);
    list.push(rate(count, model.prefill(0, count)));
  }
  out.set("prefill", std::move(list));
}

void run_batch(Measured& model, const Numbers& n, Json& out) {
  for (std::size_t s = 0; s < n[0]; ++s) model.prefill(s, 8);
  model.decode(2);
  out.set("decode", rate(double{1} * n[0] * n[1], model.decode(n[1])));
}

void run_agents(Measured& model, const Numbers& n, Json& out) {
  const Stopwatch watch;
  out.set("prefill", rate(n[1], model.prefill(0, n[1])));
  model.share_first();
  out.set("decode", rate(double{1} * n[0] * n[2], model.decode(n[2])));
  out.set("wall_seconds", watch.seconds());
}

void run_turns(Measured& model, const Numbers& n, Json& out) {
  const Stopwatch watch;
  out.set("prefill", rate(n[1], model.prefill(0, n[1])));
  model.share_first();
  double given = 0, generated = 0;
  for (std::uint32_t turn = 0; turn < n[2]; ++turn) {
    generated += model.decode(n[3]);
    given += model.give(n[4]);
  }
  const double all = double{1} * n[0] * n[2];
  out.set("generated", rate(all * n[3], generated));
  out.set("given", rate(all * n[4], given));
  out.set("wall_seconds", watch.seconds());
}

struct Mode {
  const char* name;
  std::size_t least, most;  // numbers
  void (*run)(Measured&, const Numbers&, Json&);
  std::uint64_t (*context)(const Numbers&);  // of each sequence
};

constexpr std::uint64_t one = 1;  // sums and products in 64 bits
constexpr Mode modes[] = {
    {"decode", 1, 2, run_decode, [](const Numbers& n) { return one * n[0] + prompt_tokens(n); }},
    {"prefill", 1, 1024, run_prefill,
     [](const Numbers& n) { return one * std::max(64u, *std::max_element(n.begin(), n.end())); }},
    {"batch", 2, 2, run_batch, [](const Numbers& n) { return one * n[1] + 10; }},
    {"agents", 3, 3, run_agents, [](const Numbers& n) { return one * n[1] + n[2]; }},
    {"turns", 5, 5, run_turns, [](const Numbers& n) { return n[1] + one * n[2] * (n[3] + n[4]); }},
};

const Mode& find_mode(std::string_view name) {
  const auto found = std::find_if(std::begin(modes), std::end(modes),
                                  [&](const Mode& mode) { return name == mode.name; });
  if (found == std::end(modes)) die("the mode is decode, prefill, batch, agents or turns");
  return *found;
}

std::uint32_t number(std::string_view text) {
  return static_cast<std::uint32_t>(bench::number(text, 1 << 20));
}

Numbers numbers_of(const Mode& mode, std::span<const std::string> words) {
  if (words.size() < mode.least) die("too few numbers");
  if (words.size() > mode.most) die("too many numbers");
  Numbers numbers;
  for (const std::string& word : words) numbers.push_back(number(word));
  return numbers;
}

std::uint32_t context_of(const Mode& mode, const Numbers& numbers, std::uint32_t warm_tokens) {
  const std::uint64_t context = std::max<std::uint64_t>(mode.context(numbers), warm_tokens);
  if (context > limits::context_max)
    die(fmt::format("{} positions, at most {}", context, limits::context_max));
  return static_cast<std::uint32_t>(context);
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    die(fmt::format("the result could not be written: stdout: {}", std::strerror(errno)));
}

}  // namespace

int main(int argc, char** argv) {
  // Before any file is opened, which would get its number.
  if (fcntl(STDOUT_FILENO, F_GETFD) < 0) die("stdout is closed");
  std::vector<std::string> words(argv + 1, argv + argc);
  EngineConfig config;
  config.threads = 2;
  std::uint32_t warm_tokens = 0;
  for (; words.size() > 2 && words[0].starts_with('-') && words[0] != "-";
       words.erase(words.begin(), words.begin() + 2)) {
    if (words[0] == "-t") config.threads = number(words[1]);
    else if (words[0] == "-ub") config.batch_tokens = number(words[1]);
    else if (words[0] == "-w") warm_tokens = number(words[1]);
    else die("no flag " + words[0]);
  }
  if (words.size() < 3) die("usage: sequences_bench [-t N] [-ub N] [-w N] MODEL MODE NUMBERS...");
  const Mode& mode = find_mode(words[1]);
  const Numbers numbers = numbers_of(mode, std::span(words).subspan(2));
  const bool alone = mode.run == run_decode || mode.run == run_prefill;
  config.model_path = words[0] == "-" ? must(embedded_model_path()) : words[0];
  config.sequences = alone ? 1 : numbers[0];
  config.context = context_of(mode, numbers, warm_tokens);
  Measured model(config);
  warm(model, warm_tokens);
  Json out = Json::object();
  out.set("peer", "millrace").set("mode", mode.name).set("threads", model.threads());
  out.set("kernels", model.kernels()).set("load_seconds", model.load_seconds());
  mode.run(model, numbers, out);
  print(out.set("ids_hash", hash_hex(model.ids_hash())).dump() + "\n");
  return 0;
}
