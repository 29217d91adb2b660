// One measurement of a llama.cpp-like engine through its own C interface, as one JSON object on
// stdout: what our figures are set beside. Built by hand against a peer that was built or installed
// elsewhere (README.md); the project's own build does not know it.
//   usage: peer MODEL decode  TOKENS [PROMPT]        one sequence
//          peer MODEL prefill TOKENS [TOKENS ...]    one prompt of each length, the cache emptied
//          peer MODEL batch   SEQUENCES TOKENS       each with a prompt of 8 of its own
//          peer MODEL agents  SEQUENCES PREFIX TOKENS   a shared prefix, then decode in step
//          peer MODEL turns   SEQUENCES PREFIX TURNS GENERATED GIVEN
// and NAME=NUMBER behind these: THREADS (2), UB (512), WARM (0: tokens of a prompt that goes first
// and is forgotten), CONTEXT (by mode), MMAP=0, REPACK=0, UNIFIED=0; with -DIK instead of the last
// two RTR=1 (repack while loading), THP=1, DEFER=1, PREFETCH=1 (experts ahead of a mapped model).
// Other names and what is no number are refused. More tokens than the engine takes at once go in
// several steps.
#include <llama.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#ifndef PEER_NAME
#define PEER_NAME "llama.cpp"
#endif

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "peer: %s\n", what.c_str());
  std::exit(1);
}

std::map<std::string, int>& settings() {
  static std::map<std::string, int> all;
  return all;
}

int setting(const char* name, int otherwise) {
  const auto found = settings().find(name);
  return found == settings().end() ? otherwise : found->second;
}

int number(std::string_view text, int least) {
  constexpr int most = 1 << 20;
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most)
    fail("\"" + std::string(text) + "\" is no number of " + std::to_string(least) + " to " +
         std::to_string(most));
  return value;
}

// NAME=NUMBER, of the names that this engine has.
void set(const std::string& name, std::string_view text) {
  static const std::map<std::string, int> least = {
      {"THREADS", 1}, {"UB", 1},  {"WARM", 0},  {"CONTEXT", 1},  {"MMAP", 0},
#ifdef IK
      {"RTR", 0},     {"THP", 0}, {"DEFER", 0}, {"PREFETCH", 0},
#else
      {"REPACK", 0},  {"UNIFIED", 0},
#endif
  };
  const auto found = least.find(name);
  if (found == least.end()) fail("no setting " + name);
  settings()[name] = number(text, found->second);
}

// Tokens drawn evenly from the vocabulary, the same for every peer.
class Tokens {
 public:
  explicit Tokens(int vocabulary) : vocabulary_(vocabulary) {}
  llama_token next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<llama_token>((state_ >> 33) % static_cast<std::uint64_t>(vocabulary_));
  }

 private:
  int vocabulary_;
  std::uint64_t state_ = 7;
};

class Peer {
 public:
  Peer(const char* path, int context_tokens, int sequences) : sequences_(sequences) {
    llama_backend_init();
    llama_model_params model = llama_model_default_params();
    set_model(model);
    const auto start = Clock::now();
    model_ = llama_model_load_from_file(path, model);
    if (model_ == nullptr) fail("the model does not load");
    load_seconds_ = seconds_since(start);
    llama_context_params context = llama_context_default_params();
    set_context(context, context_tokens);
    context_ = llama_init_from_model(model_, context);
    if (context_ == nullptr) fail("no context");
    vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    batch_tokens_ = static_cast<int>(llama_n_batch(context_));
    batch_ = llama_batch_init(batch_tokens_, 0, 1);
    lengths_.assign(static_cast<std::size_t>(sequences), 0);
  }

  int vocabulary() const { return vocabulary_; }
  int sequences() const { return sequences_; }
  double load_seconds() const { return load_seconds_; }

  void clear() {
#ifdef IK
    llama_kv_cache_clear(context_);
#else
    llama_memory_clear(llama_get_memory(context_), true);
#endif
    std::fill(lengths_.begin(), lengths_.end(), 0);
  }

  // All sequences go on from what sequence 0 holds.
  void share_first() {
    for (int s = 1; s < sequences_; ++s) {
#ifdef IK
      llama_kv_cache_seq_cp(context_, 0, s, -1, -1);
#else
      llama_memory_seq_cp(llama_get_memory(context_), 0, s, -1, -1);
#endif
      lengths_[static_cast<std::size_t>(s)] = lengths_[0];
    }
  }

  // What is there goes through first if the batch is full.
  void add(int sequence, llama_token token, bool wants_logits) {
    if (batch_.n_tokens == batch_tokens_) step();
    const int i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = lengths_[static_cast<std::size_t>(sequence)]++;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = wants_logits ? 1 : 0;
  }

  void step() {
    if (llama_decode(context_, batch_) != 0) fail("decode failed");
    batch_.n_tokens = 0;
  }

  // The likeliest token after row `i` of the last step.
  llama_token best(int i) {
    const float* logits = llama_get_logits_ith(context_, i);
    if (logits == nullptr) fail("no logits");
    return static_cast<llama_token>(std::max_element(logits, logits + vocabulary_) - logits);
  }

  // One step of one token each (several, of more sequences than a batch has room for); returns
  // what each is likely to say next.
  void step_each(std::vector<llama_token>& tokens) {
    for (int first = 0; first < sequences_; first += batch_tokens_) {
      const int end = std::min(sequences_, first + batch_tokens_);
      for (int s = first; s < end; ++s) add(s, tokens[static_cast<std::size_t>(s)], true);
      step();
      for (int s = first; s < end; ++s) tokens[static_cast<std::size_t>(s)] = best(s - first);
    }
  }

 private:
  static void set_model(llama_model_params& p) {
    p.n_gpu_layers = 0;
#ifdef IK
    p.use_mmap = setting("MMAP", 1) != 0;
    p.repack_tensors = setting("RTR", 0) != 0;
    p.defer_experts = setting("DEFER", 0) != 0;
    p.use_thp = setting("THP", 0) != 0;
    p.flash_attn = true;
#else
    p.use_extra_bufts = setting("REPACK", 1) != 0;
    if (setting("MMAP", 1) == 0) p.load_mode = llama_load_mode_from_str("none");
#endif
  }

  void set_context(llama_context_params& p, int context_tokens) const {
    p.n_ctx = static_cast<std::uint32_t>(setting("CONTEXT", context_tokens));
    p.n_batch = 4096;
    p.n_ubatch = static_cast<std::uint32_t>(setting("UB", 512));
    p.n_seq_max = static_cast<std::uint32_t>(sequences_);
    p.n_threads = setting("THREADS", 2);
    p.n_threads_batch = p.n_threads;
#ifdef IK
    p.flash_attn = true;
    p.prefetch_experts = setting("PREFETCH", 0) != 0;
#else
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    p.kv_unified = setting("UNIFIED", 1) != 0;
    p.no_perf = true;
#endif
  }

  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  llama_batch batch_{};
  int batch_tokens_ = 0;  // that it has room for
  int vocabulary_ = 0;
  int sequences_;
  double load_seconds_ = 0.0;
  std::vector<int> lengths_;
};

double prefill(Peer& peer, Tokens& tokens, int sequence, int count) {
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) peer.add(sequence, tokens.next(), i + 1 == count);
  peer.step();
  return seconds_since(start);
}

double decode(Peer& peer, Tokens& tokens, int count) {
  std::vector<llama_token> now(static_cast<std::size_t>(peer.sequences()));
  for (llama_token& token : now) token = tokens.next();
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) peer.step_each(now);
  return seconds_since(start);
}

void print_rate(const char* what, double count, double seconds) {
  std::printf("\"%s\": {\"tokens\": %.0f, \"seconds\": %.6f, \"tokens_per_second\": %.4f}", what,
              count, seconds, count / seconds);
}

void run_decode(Peer& peer, Tokens& tokens, const std::vector<int>& n) {
  const int prompt = n.size() > 1 ? n[1] : 5;
  print_rate("prefill", prompt, prefill(peer, tokens, 0, prompt));
  std::printf(", ");
  print_rate("decode", n[0], decode(peer, tokens, n[0]));
}

void run_prefill(Peer& peer, Tokens& tokens, const std::vector<int>& n) {
  prefill(peer, tokens, 0, 64);  // pages and caches warm
  std::printf("\"prefill\": [");
  for (std::size_t i = 0; i < n.size(); ++i) {
    peer.clear();
    const double seconds = prefill(peer, tokens, 0, n[i]);
    std::printf("%s{\"tokens\": %d, \"seconds\": %.6f}", i == 0 ? "" : ", ", n[i], seconds);
  }
  std::printf("]");
}

void run_batch(Peer& peer, Tokens& tokens, const std::vector<int>& n) {
  for (int s = 0; s < n[0]; ++s) prefill(peer, tokens, s, 8);
  decode(peer, tokens, 2);
  print_rate("decode", double{1} * n[0] * n[1], decode(peer, tokens, n[1]));
}

void run_agents(Peer& peer, Tokens& tokens, const std::vector<int>& n) {
  const auto start = Clock::now();
  print_rate("prefill", n[1], prefill(peer, tokens, 0, n[1]));
  peer.share_first();
  std::printf(", ");
  print_rate("decode", double{1} * n[0] * n[2], decode(peer, tokens, n[2]));
  std::printf(", \"wall_seconds\": %.6f", seconds_since(start));
}

void run_turns(Peer& peer, Tokens& tokens, const std::vector<int>& n) {
  const auto start = Clock::now();
  print_rate("prefill", n[1], prefill(peer, tokens, 0, n[1]));
  peer.share_first();
  double given = 0.0, generated = 0.0;
  for (int turn = 0; turn < n[2]; ++turn) {
    generated += decode(peer, tokens, n[3]);
    const auto give = Clock::now();
    for (int s = 0; s < n[0]; ++s) {
      for (int i = 0; i < n[4]; ++i) peer.add(s, tokens.next(), i + 1 == n[4]);
    }
    peer.step();
    given += seconds_since(give);
  }
  std::printf(", ");
  print_rate("generated", double{1} * n[0] * n[2] * n[3], generated);
  std::printf(", ");
  print_rate("given", double{1} * n[0] * n[2] * n[4], given);
  std::printf(", \"wall_seconds\": %.6f", seconds_since(start));
}

void warm(Peer& peer, Tokens& tokens, int count) {
  if (count == 0) return;
  prefill(peer, tokens, 0, count);
  peer.clear();
}

using Numbers = std::vector<int>;

struct Mode {
  const char* name;
  std::size_t least, most;  // numbers
  void (*run)(Peer&, Tokens&, const Numbers&);
  double (*context)(const Numbers&);  // of all sequences; a double, since none of it may wrap
};

constexpr double one = 1;
constexpr Mode kModes[] = {
    {"decode", 1, 2, run_decode,
     [](const Numbers& n) { return one * n[0] + (n.size() > 1 ? n[1] : 5) + 8; }},
    {"prefill", 1, 1024, run_prefill,
     [](const Numbers& n) { return one * *std::max_element(n.begin(), n.end()) + 64; }},
    {"batch", 2, 2, run_batch, [](const Numbers& n) { return one * n[0] * (n[1] + 16); }},
    {"agents", 3, 3, run_agents, [](const Numbers& n) { return n[1] + one * n[0] * (n[2] + 8); }},
    {"turns", 5, 5, run_turns,
     [](const Numbers& n) { return n[1] + one * n[0] * n[2] * (n[3] + n[4]) + 64; }},
};

const Mode& find_mode(std::string_view name) {
  for (const Mode& mode : kModes)
    if (name == mode.name) return mode;
  fail("the mode is decode, prefill, batch, agents or turns");
}

void quiet(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) fail("usage: peer MODEL decode|prefill|batch|agents|turns NUMBERS...");
  const Mode& mode = find_mode(argv[2]);
  Numbers numbers;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) numbers.push_back(number(word, 1));
    else set(word.substr(0, equals), std::string_view(word).substr(equals + 1));
  }
  if (numbers.size() < mode.least) fail("too few numbers");
  if (numbers.size() > mode.most) fail("too many numbers");
  const double context = std::max(mode.context(numbers), one * setting("WARM", 0));
  if (context > 1 << 24) fail("more than 16777216 positions");
  llama_log_set(quiet, nullptr);
  const bool alone = mode.run == run_decode || mode.run == run_prefill;
  Peer peer(argv[1], static_cast<int>(context), alone ? 1 : numbers[0]);
  Tokens tokens(peer.vocabulary());
  warm(peer, tokens, setting("WARM", 0));
  std::printf("{\"peer\": \"%s\", \"mode\": \"%s\", \"threads\": %d, \"load_seconds\": %.3f, ",
              PEER_NAME, mode.name, setting("THREADS", 2), peer.load_seconds());
  mode.run(peer, tokens, numbers);
  std::printf("}\n");
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!written) std::fprintf(stderr, "peer: the result could not be written to stdout\n");
  std::_Exit(written ? 0 : 1);
}
