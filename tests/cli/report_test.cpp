// The report of a run: all keys, their kinds, and numbers that fit each other.
#include <set>

#include "runtime/base/hash.h"
#include "tests/cli/gguf_edit.h"
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;

namespace {

enum class Kind { text, flag, count, number, count_or_null, number_or_null };

struct Key {
  const char* path;
  Kind kind;
};

constexpr Key keys[] = {
    {"text", Kind::text},
    {"finish_reason", Kind::text},
    {"seed", Kind::count},
    {"state_hash", Kind::text},
    {"isa", Kind::text},
    {"threads", Kind::count},
    {"context", Kind::count},
    {"prompt.tokens", Kind::count},
    {"prompt.seconds", Kind::number},
    {"prompt.tokens_per_second", Kind::number},
    {"load.seconds", Kind::number},
    {"decode.tokens", Kind::count},
    {"decode.seconds", Kind::number},
    {"decode.tokens_per_second", Kind::number},
    {"decode.compute_seconds", Kind::number},
    {"decode.stalled_seconds", Kind::number},
    {"decode.other_seconds", Kind::number},
    {"cache.hits", Kind::count},
    {"cache.misses", Kind::count},
    {"cache.hit_rate", Kind::number},
    {"cache.decode_hit_rate", Kind::number},
    {"cache.bytes", Kind::count},
    {"cache.slots", Kind::count},
    {"cache.policy", Kind::text},
    {"prefetch.predictor", Kind::text},
    {"prefetch.issued_bytes", Kind::count_or_null},
    {"prefetch.useful_bytes", Kind::count_or_null},
    {"prefetch.wasted_bytes", Kind::count_or_null},
    {"prefetch.recall", Kind::number_or_null},
    {"prefetch.precision", Kind::number_or_null},
    {"io.reader", Kind::text},
    {"io.direct", Kind::flag},
    {"io.bytes_read", Kind::count},
    {"io.bytes_per_token", Kind::number},
    {"io.read_bytes_per_second", Kind::number},
    {"io.busy_share", Kind::number},
    {"io.floor_bytes_per_second", Kind::number_or_null},
    {"io.floor_share", Kind::number_or_null},
    {"memory.plan_bytes", Kind::count},
    {"memory.peak_rss_bytes", Kind::count},
    {"memory.huge_bytes", Kind::count},
    {"model.architecture", Kind::text},
    {"model.name", Kind::text},
    {"model.layers", Kind::count},
    {"model.experts", Kind::count},
    {"model.experts_used", Kind::count},
    {"model.expert_bytes", Kind::count},
    {"model.pool_bytes", Kind::count},
    {"model.trunk_bytes", Kind::count},
    {"predicted.tokens_per_second_low", Kind::number_or_null},
    {"predicted.tokens_per_second_high", Kind::number_or_null},
};

bool is_of(const Json& value, Kind kind) {
  std::int64_t count = 0;
  double number = 0;
  switch (kind) {
    case Kind::text:
      return value.as_string() != nullptr;
    case Kind::flag:
      return value.as_bool() != nullptr;
    case Kind::count:
      return value.get_integer(count) && count >= 0;
    case Kind::number:
      return value.get_number(number) && number >= 0;
    case Kind::count_or_null:
      return value.is_null() || is_of(value, Kind::count);
    case Kind::number_or_null:
      return value.is_null() || is_of(value, Kind::number);
  }
  return false;
}

// Requests that the routing trace shows: one per layer and expert in the prompt (of one part), one
// per layer, step and expert afterwards.
struct Requests {
  std::set<std::string> prompt;
  std::int64_t decode = 0;
};

Requests requests_of(const std::string& csv) {
  Requests requests;
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  REQUIRE(line == "turn,phase,step,layer,experts,weights");
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string turn, phase, step, layer, experts, expert;
    for (std::string* field : {&turn, &phase, &step, &layer, &experts})
      std::getline(fields, *field, ',');
    std::istringstream list(experts);
    while (list >> expert) {
      if (phase == "0") requests.prompt.insert(layer + ":" + expert);
      else ++requests.decode;
    }
  }
  return requests;
}

const Words tale = {"-p", "Once upon a time", "--cache", "25%", "--seed", "7"};

}  // namespace

TEST_CASE("With --json, stdout is one object with all keys of the contract, of the right kind") {
  const std::string model = GENERATE(embedded_model(), small_model(), small_model("llama-f32"),
                                     small_model("mixtral-mxfp4"));
  CAPTURE(model);
  const Json report = run_json({model, "-p", "Once", "-n", "4"});
  for (const Key& key : keys) {
    CAPTURE(key.path, at(report, key.path).dump());
    CHECK(is_of(at(report, key.path), key.kind));
  }
}

TEST_CASE("Without --json, stdout is the prompt and the same text") {
  const Json report = run_json(tale + Words{"-n", "30"});
  const Outcome plain = run_program(Words{"run"} + tale + Words{"-n", "30"});
  CHECK(plain.code == 0);
  CHECK(plain.out == "Once upon a time" + text_at(report, "text") + "\n");
  CHECK(contains(plain.err, text_at(report, "state_hash")));
  CHECK_FALSE(text_at(report, "text").empty());
}

TEST_CASE("The state hash is XXH3-64 of the dumped logits, one row per sampled token") {
  const testing::TempFolder folder;
  const std::string path = folder.path("state");
  const Json report = run_json(tale + Words{"-n", "9", "--dump-state", path});
  const std::string bytes = read_file(path);
  CHECK(bytes.size() == 9 * 4096 * sizeof(float));
  CHECK(hash_hex(hash64(bytes.data(), bytes.size())) == text_at(report, "state_hash"));
}

TEST_CASE("Tokens, hits, misses and rates fit each other and the routing trace") {
  const testing::TempFolder folder;
  const Json report =
      run_json(tale + Words{"-n", "20", "--ignore-eos", "--trace", folder.path("t")});
  CHECK(text_at(report, "finish_reason") == "length");
  CHECK(integer_at(report, "prompt.tokens") == 5);
  CHECK(integer_at(report, "decode.tokens") == 19);
  const Requests requests = requests_of(read_file(folder.path("t")));
  CHECK(requests.decode ==
        19 * integer_at(report, "model.layers") * integer_at(report, "model.experts_used"));
  const auto hits = integer_at(report, "cache.hits");
  const auto misses = integer_at(report, "cache.misses");
  CHECK(hits + misses == requests.decode + static_cast<std::int64_t>(requests.prompt.size()));
  CHECK(number_at(report, "cache.hit_rate") ==
        Approx(static_cast<double>(hits) / static_cast<double>(hits + misses)));
  CHECK(misses * integer_at(report, "model.expert_bytes") <= integer_at(report, "io.bytes_read"));
  CHECK(integer_at(report, "cache.bytes") <= integer_at(report, "model.pool_bytes") / 4);
  const double seconds = number_at(report, "decode.seconds");
  CHECK(number_at(report, "decode.compute_seconds") + number_at(report, "decode.stalled_seconds") +
            number_at(report, "decode.other_seconds") ==
        Approx(seconds));
  CHECK(number_at(report, "decode.tokens_per_second") * seconds == Approx(19));
}

TEST_CASE("A cache of the whole pool reads each expert at most once") {
  const Json report =
      run_json({"-p", "Once upon a time", "-n", "60", "--cache", "all", "--seed", "7"});
  CHECK(integer_at(report, "cache.slots") ==
        integer_at(report, "model.layers") * integer_at(report, "model.experts"));
  CHECK(integer_at(report, "cache.misses") <= integer_at(report, "cache.slots"));
}

TEST_CASE("A run without a seed reports the one that repeats it") {
  const Words common = {"-p", "Once upon a time", "-n", "20"};
  const Json first = run_json(common);
  const Json again = run_json(common + Words{"--seed", std::to_string(integer_at(first, "seed"))});
  CHECK(text_at(again, "text") == text_at(first, "text"));
  CHECK(text_at(again, "state_hash") == text_at(first, "state_hash"));
}

TEST_CASE("A stop text ends the run, and neither it nor what follows is shown") {
  const Words common = tale + Words{"-n", "30"};
  const std::string whole = text_at(run_json(common), "text");
  REQUIRE(whole.size() > 24);
  const std::string stop = whole.substr(12, 6);
  const Json report = run_json(common + Words{"--stop", "never said", "--stop", stop});
  CHECK(text_at(report, "finish_reason") == "stop");
  CHECK(text_at(report, "text") == whole.substr(0, whole.find(stop)));
  CHECK(integer_at(report, "decode.tokens") < 29);
}

TEST_CASE("An end token ends the run with reason stop, unless it is to be ignored") {
  const testing::TempFolder folder;
  const Words greedy = {"--temp", "0", "-n", "12"};
  const std::string sound = small_model();
  const Json whole = run_json(Words{sound, "-p", "Hello"} + greedy);
  REQUIRE(text_at(whole, "finish_reason") == "length");
  // The fourth token of the answer becomes the end token.
  const auto prompt = only_json(run_program({"tokenize", sound, "--text", "Hello", "--json"}));
  const std::string prompt_ids = folder.write("prompt", at(prompt, "ids").dump());
  const std::string out = folder.path("greedy");
  REQUIRE(run_program({"logits", sound, "--tokens", prompt_ids, "-o", "/dev/null", "--greedy", "4",
                       "--greedy-out", out})
              .code == 0);
  const auto answer = integers(at(*Json::parse(read_file(out)), "ids"));
  GgufEdit edit(read_file(sound));
  edit.set_u32("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(answer.back()));
  const std::string path = folder.write("m.gguf", edit.bytes());
  const Json ended = run_json(Words{path, "-p", "Hello"} + greedy);
  CHECK(text_at(ended, "finish_reason") == "stop");
  CHECK(integer_at(ended, "decode.tokens") <= 3);
  CHECK(text_at(whole, "text").starts_with(text_at(ended, "text")));
  const Json ignored = run_json(Words{path, "-p", "Hello", "--ignore-eos"} + greedy);
  CHECK(text_at(ignored, "finish_reason") == "length");
  CHECK(integer_at(ignored, "decode.tokens") == 11);
}

TEST_CASE("A full context ends the run with reason length") {
  const Json report = run_json(tale + Words{"-n", "100", "-c", "16", "--ignore-eos"});
  CHECK(text_at(report, "finish_reason") == "length");
  CHECK(integer_at(report, "context") == 16);
  // The last token needs no place, since nothing is computed from it.
  CHECK(integer_at(report, "prompt.tokens") + integer_at(report, "decode.tokens") == 16);
}

TEST_CASE("With --json, a run that is refused is one object too, with the message of stderr") {
  struct Refused {
    Words flags;
    int code;
  };
  const auto refused = GENERATE(Refused{{"-p", ""}, 1}, Refused{{"-p", "x", "-n", "0"}, 1},
                                Refused{{"-p", "x", "--cache", "5X"}, 1},
                                Refused{{"-p", "x", "-m", "absent.gguf"}, 2},
                                Refused{{"-p", "x", "--trunk", "1"}, 4},
                                Refused{{"-p", "a b c d e f g h i j", "-c", "4"}, 1});
  CAPTURE(refused.flags);
  const Outcome outcome = run_program(Words{"run", "--json", "-q"} + refused.flags);
  CHECK(outcome.code == refused.code);
  const Json object = only_json(outcome);
  CHECK(object.as_object()->size() == 2);
  CHECK(text_at(object, "finish_reason") == "error");
  CHECK(contains(outcome.err, text_at(object, "error")));
}

TEST_CASE("A run that decodes nothing says so, without ratios of it") {
  const testing::TempFolder cache;
  const Outcome outcome = run_program({"run", "-p", "Once upon", "-n", "1", "--cache", "25%"},
                                      {.cache_folder = cache.path("")});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.err, "nothing was decoded"));
  for (const char* const text :
       {"0.0 tokens/s", "choices guessed", "achieved", "per decoded token"})
    CHECK_FALSE(contains(outcome.err.substr(outcome.err.find("decode ")), text));
}

TEST_CASE("What a report cannot say of floor and speed has its reason") {
  const testing::TempFolder cache;
  const auto report = [&](const Words& more) {
    const Outcome outcome = run_program(Words{"run", "-p", "Once upon", "-n", "4"} + more,
                                        {.cache_folder = cache.path("")});
    REQUIRE(outcome.code == 0);
    return outcome.err;
  };
  const std::string plain = report({"--cache", "25%"});
  CAPTURE(plain);
  const std::string reason = "of experts are too small to time the drive";
  CHECK(contains(plain, "no speed: "));
  CHECK(contains(plain, "floor      not known: "));
  CHECK(contains(plain, reason));
  CHECK_FALSE(contains(plain, "too short"));
  CHECK(contains(plain, "`millrace floor "));
  const std::string buffered = report({"--cache", "25%", "--direct", "off"});
  CHECK(contains(buffered, "reads through the page cache have no profile"));
}

TEST_CASE("A preset says what it plans before the run, unless -q; auto does for large models") {
  const Words flags = {"run", "-p", "Once", "-n", "2", "--preset", "tiny"};
  const Outcome shown = run_program(flags);
  CAPTURE(shown.err);
  CHECK(shown.code == 0);
  CHECK(contains(shown.err, "  plan "));
  CHECK(contains(shown.err, "expert cache"));
  CHECK(shown.err.find("  plan ") < shown.err.find("  load "));
  CHECK(run_program(flags + Words{"-q"}).err.empty());
  CHECK_FALSE(contains(run_program({"run", "-p", "Once", "-n", "2"}).err, "  plan "));
}
