// Every flag is there, is told by --help, does what it says, and refuses what makes no sense.
#include <fcntl.h>
#include <unistd.h>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;

namespace {

const std::string tiny = small_model();

// Flags that a command's --help must tell.
struct Told {
  const char* command;
  Words flags;
};

const Words engine_flags = {"-m,",      "-c,",           "-t,--threads", "-ub",      "--preset",
                            "--cache",  "--trunk",       "--kv",         "--isa",    "--io",
                            "--direct", "--activations", "--prefetch",   "--policy", "-q,",
                            "-v,",      "--version"};
const Words run_flags = {"-p,",
                         "-f,",
                         "-n,",
                         "--seed",
                         "--temp",
                         "--top-k",
                         "--top-p",
                         "--min-p",
                         "--repeat-penalty",
                         "--repeat-last-n",
                         "--presence-penalty",
                         "--frequency-penalty",
                         "--stop",
                         "--ignore-eos",
                         "--trace",
                         "--dump-state",
                         "--json"};

// A short run of the small model with further flags.
Words short_run(const Words& flags) {
  return Words{tiny, "-p", "Hello", "-n", "3", "--temp", "0"} + flags;
}

}  // namespace

TEST_CASE("The help of each command tells all of its flags") {
  const Told told = GENERATE(
      Told{"run", engine_flags + run_flags},
      Told{"logits",
           engine_flags + Words{"--tokens", "-o,", "--one-by-one", "--greedy", "--greedy-out"}},
      Told{"tokenize", {"-m,", "--text", "--file", "--parse-special", "--json", "--decode"}},
      Told{"perplexity", engine_flags + Words{"FILE", "--chunks", "--json"}});
  CAPTURE(told.command);
  const Outcome outcome = run_program({told.command, "--help"});
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, std::string("Usage: millrace ") + told.command));
  for (const std::string& flag : told.flags) {
    CAPTURE(flag);
    CHECK(contains(outcome.out, flag));
  }
  CHECK(contains(run_program({"--help"}).out, told.command));
}

TEST_CASE("The version is told by the program and by each command") {
  const Outcome outcome = run_program({"--version"});
  CHECK(outcome.code == 0);
  CHECK(outcome.out == "millrace " MILLRACE_VERSION "\n");
  CHECK(run_program({"run", "--version"}).out == outcome.out);
}

TEST_CASE("Help and version that cannot be written end with 2") {
  const Words words = GENERATE(Words{"--help"}, Words{"--version"}, Words{"run", "--help"},
                               Words{"tokenize", "--version"});
  CAPTURE(words);
  const Outcome outcome = run_program(words, {.before_exec = [] {
                                        const int full = open("/dev/full", O_WRONLY);
                                        return full >= 0 && dup2(full, STDOUT_FILENO) >= 0;
                                      }});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "stdout: "));
}

TEST_CASE("Without a command, and with one that does not exist, the program says what it takes") {
  CHECK(run_program({}).code == 1);
  CHECK(contains(run_program({}).err, "run "));
  CHECK(run_program({"rnu"}).code == 1);
  CHECK(contains(run_program({"rnu"}).err, "rnu"));
}

TEST_CASE("Each flag of run is taken and shows in the report") {
  struct Effect {
    Words flags;
    const char* path;
    Json value;
  };
  const auto effect =
      GENERATE(Effect{{"-c", "40"}, "context", 40}, Effect{{"-t", "1"}, "threads", 1},
               Effect{{"--threads", "3"}, "threads", 3}, Effect{{"-n", "5"}, "decode.tokens", 4},
               Effect{{"--isa", "scalar"}, "isa", "scalar"},
               Effect{{"--io", "threads"}, "io.reader", "threads"},
               Effect{{"--direct", "off"}, "io.direct", false}, Effect{{"--seed", "7"}, "seed", 7},
               Effect{{"--policy", "lru"}, "cache.policy", "lru"},
               Effect{{"--prefetch", "off"}, "prefetch.predictor", "off"});
  CAPTURE(effect.flags);
  CHECK(at(run_json(short_run(effect.flags)), effect.path).dump() == effect.value.dump());
}

TEST_CASE("Flags that may not change the result do not change it") {
  const std::string hash = text_at(run_json(short_run({})), "state_hash");
  const Words flags = GENERATE(Words{"-ub", "1"}, Words{"-ub=2"}, Words{"--preset", "tiny"},
                               Words{"--preset", "laptop"}, Words{"--preset", "server"},
                               Words{"--preset", "auto", "--cache", "all", "--trunk", "all"},
                               Words{"--cache", "50%", "--trunk", "100%"}, Words{"-q", "-v"},
                               Words{"--kv", "f16", "--activations", "q8", "--direct", "auto"});
  CAPTURE(flags);
  CHECK(text_at(run_json(short_run(flags)), "state_hash") == hash);
}

TEST_CASE("Flags that change the arithmetic or the choice change the result") {
  const Json plain = run_json(short_run({"-n", "24"}));
  SECTION("the logits") {
    const Words flags = GENERATE(Words{"--kv", "f32"}, Words{"--activations", "f32"});
    CAPTURE(flags);
    CHECK(text_at(run_json(short_run(Words{"-n", "24"} + flags)), "state_hash") !=
          text_at(plain, "state_hash"));
  }
  SECTION("the text") {
    const Words flags = GENERATE(
        Words{"--temp", "1.5", "--seed", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0"},
        Words{"--repeat-penalty", "50", "--repeat-last-n", "-1"}, Words{"--presence-penalty", "90"},
        Words{"--frequency-penalty", "90"});
    CAPTURE(flags);
    CHECK(text_at(run_json(short_run(Words{"-n", "24"} + flags)), "text") !=
          text_at(plain, "text"));
  }
  SECTION("truncation to one token is the greedy choice") {
    const Words flags =
        GENERATE(Words{"--top-k", "1"}, Words{"--top-p", "0.0001"}, Words{"--min-p", "1"});
    CAPTURE(flags);
    CHECK(text_at(run_json(short_run(Words{"-n", "24", "--temp", "2"} + flags)), "state_hash") ==
          text_at(plain, "state_hash"));
  }
}

TEST_CASE("The largest seed is taken as it stands") {
  CHECK(integer_at(run_json(short_run({"--seed", "4294967294"})), "seed") == 4294967294);
}

TEST_CASE("The last of two equal flags wins") {
  CHECK(integer_at(run_json(short_run({"--seed", "1", "--seed", "2"})), "seed") == 2);
}

TEST_CASE("The prompt comes from -p, from a file, or from stdin, and is the same") {
  const testing::TempFolder folder;
  const std::string file = folder.write("prompt", "Hello there");
  const Words common = {"run", "--json", "-q", tiny, "-n", "4", "--temp", "0"};
  const std::string hash =
      text_at(only_json(run_program(common + Words{"-p", "Hello there"})), "state_hash");
  CHECK(text_at(only_json(run_program(common + Words{"-f", file})), "state_hash") == hash);
  const Outcome piped = run_program(common + Words{"-f", "-"}, {.input = "Hello there"});
  CHECK(text_at(only_json(piped), "state_hash") == hash);
}

TEST_CASE("Numbers are decimal with zeros in front, and short names take = too") {
  CHECK(integer_at(run_json(short_run({"-n", "010"})), "decode.tokens") == 9);
  CHECK(integer_at(run_json(short_run({"-t", "02", "-c", "0100"})), "context") == 100);
  CHECK(integer_at(run_json(short_run({"-n=3"})), "decode.tokens") == 2);
  CHECK(integer_at(run_json(short_run({"--seed", "007"})), "seed") == 7);
  // A text that only looks like one of them stays whole.
  const Outcome sums = run_program({"tokenize", tiny, "--text", "-1=2", "--json"});
  const Outcome parts = run_program({"tokenize", tiny, "--text=-1=2", "--json"});
  CHECK(sums.code == 0);
  CHECK(sums.out == parts.out);
}

TEST_CASE("Two models are refused, not one of them taken") {
  const Outcome outcome = run_program({"run", tiny, "-m", tiny, "-p", "x", "-n", "1"});
  CHECK(outcome.code == 1);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "--model"));
}

TEST_CASE("The model comes from -m, from the first word, or is the embedded one") {
  CHECK(integer_at(run_json({"-m", tiny, "-p", "x", "-n", "1"}), "model.experts") ==
        integer_at(run_json({tiny, "-p", "x", "-n", "1"}), "model.experts"));
  CHECK(text_at(run_json({"-p", "x", "-n", "1"}), "model.name") == "Little Tales MoE");
}

TEST_CASE("Quiet leaves stderr empty; otherwise the report stands there, and verbose says more") {
  const Words common = Words{"run"} + short_run({});
  CHECK(run_program(common + Words{"-q"}).err.empty());
  const Outcome usual = run_program(common);
  CHECK(contains(usual.err, "tokens/s"));
  CHECK_FALSE(contains(usual.err, "plan:"));
  CHECK(contains(run_program(common + Words{"-v"}).err, "plan:"));
}

TEST_CASE("A wrong value ends with 1 before any text, and the message names the flag") {
  struct Wrong {
    Words flags;
    const char* named;
  };
  const auto wrong = GENERATE(
      Wrong{{"-n", "abc"}, "--predict"}, Wrong{{"-n", "-5"}, "--predict"},
      Wrong{{"-n", "0"}, "-n 0"}, Wrong{{"-c", "x"}, "--ctx"}, Wrong{{"-c", "99999999"}, "-c"},
      Wrong{{"-t", "-1"}, "--threads"}, Wrong{{"-t", "5000"}, "-t 5000"},
      Wrong{{"-ub", "0"}, "-ub 0"}, Wrong{{"-ub", "999999"}, "-ub"},
      Wrong{{"--seed", "-2"}, "--seed"}, Wrong{{"--seed", "4294967296"}, "--seed"},
      Wrong{{"--seed", "4294967295"}, "-1 for a random one"}, Wrong{{"--temp", "warm"}, "--temp"},
      Wrong{{"--temp", "nan"}, "--temp"}, Wrong{{"--top-k", "x"}, "--top-k"},
      Wrong{{"--top-p", "-1"}, "--top-p"}, Wrong{{"--min-p", "2"}, "--min-p"},
      Wrong{{"--repeat-penalty", "0"}, "--repeat-penalty"},
      Wrong{{"--repeat-last-n", "-5"}, "--repeat-last-n"},
      Wrong{{"--presence-penalty", "inf"}, "--presence-penalty"},
      Wrong{{"--frequency-penalty", "x"}, "--frequency-penalty"},
      Wrong{{"--preset", "huge"}, "--preset"}, Wrong{{"--cache", "5X"}, "--cache"},
      Wrong{{"--cache", "-1"}, "--cache"}, Wrong{{"--trunk", "200%"}, "--trunk"},
      Wrong{{"--kv", "q3"}, "--kv"}, Wrong{{"--activations", "q4"}, "--activations"},
      Wrong{{"--isa", "mmx"}, "--isa"}, Wrong{{"--io", "mmap"}, "--io"},
      Wrong{{"--direct", "maybe"}, "--direct"}, Wrong{{"--prefetch", "magic"}, "--prefetch"},
      Wrong{{"--policy", "fifo"}, "--policy"}, Wrong{{"--stop"}, "--stop"},
      Wrong{{"--no-such-flag"}, "--no-such-flag"}, Wrong{{"a", "b"}, "b"});
  CAPTURE(wrong.flags);
  const Outcome outcome = run_program(Words{"run"} + short_run(wrong.flags));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, wrong.named));
}

TEST_CASE("Values that make no sense are refused before the model is opened") {
  struct Wrong {
    Words flags;
    const char* named;
  };
  const auto wrong = GENERATE(
      Wrong{{"-n", "0"}, "-n 0"}, Wrong{{"--top-p", "0"}, "--top-p"},
      Wrong{{"--top-p", "nan"}, "--top-p"}, Wrong{{"--min-p", "nan"}, "--min-p"},
      Wrong{{"--temp", "nan"}, "--temp"}, Wrong{{"--repeat-penalty", "nan"}, "--repeat-penalty"},
      Wrong{{"--presence-penalty", "nan"}, "--presence-penalty"},
      Wrong{{"--frequency-penalty", "nan"}, "--frequency-penalty"},
      Wrong{{"--frequency-penalty", "1e308"}, "--frequency-penalty 1e308: must be a finite number"},
      Wrong{{"--temp", "1e40"}, "--temp 1e40: must be a finite number"},
      Wrong{{"--repeat-last-n", "-2"}, "--repeat-last-n"},
      Wrong{{"--stop", std::string(5000, 's')}, "stop"});
  CAPTURE(wrong.flags);
  // Neither the model nor the prompt is there: they would be missed if they were looked for.
  const Outcome outcome =
      run_program(Words{"run", "absent.gguf", "-f", "absent.txt"} + wrong.flags);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(contains(outcome.err, wrong.named));
}

TEST_CASE("A list of kernels that this CPU lacks is refused with what it has") {
  // No CPU has both.
  const Outcome neon = run_program(Words{"run"} + short_run({"--isa", "neon-dotprod"}));
  const Outcome amx = run_program(Words{"run"} + short_run({"--isa", "avx2"}));
  const Outcome& refused = neon.code == 0 ? amx : neon;
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "--isa"));
  CHECK(contains(refused.err, "scalar"));
}

TEST_CASE("A flag or word that is given but empty is refused with 1 and named, not left out") {
  struct Empty {
    Words words;
    const char* named;
  };
  const auto empty = GENERATE(
      Empty{{"run", "", "-p", "x"}, "--model"}, Empty{{"run", "-m", "", "-p", "x"}, "--model"},
      Empty{{"run", "-f", ""}, "--file"}, Empty{{"run", "-p", "x", "--cache", ""}, "--cache"},
      Empty{{"run", "-p", "x", "--trunk", ""}, "--trunk"},
      Empty{{"run", "-p", "x", "--trunk="}, "--trunk"},
      Empty{{"run", "-p", "x", "--isa", ""}, "--isa"},
      Empty{{"run", "-p", "x", "--dump-state", ""}, "--dump-state"},
      Empty{{"run", "-p", "x", "--trace", ""}, "--trace"},
      Empty{{"run", "-p", "x", "--stop", "a", "--stop", ""}, "--stop"},
      Empty{{"run", "-p", "x", "--preset", ""}, "--preset"},
      Empty{{"run", "-p", "x", "--kv", ""}, "--kv"}, Empty{{"run", "-p", "x", "--io", ""}, "--io"},
      Empty{{"run", "-p", "x", "--policy", ""}, "--policy"},
      Empty{{"perplexity", "", "t.txt"}, "--model"}, Empty{{"perplexity", "m.gguf", ""}, "FILE"},
      Empty{{"logits", "--tokens", "", "-o", "o"}, "--tokens"},
      Empty{{"logits", "--tokens", "t", "-o", ""}, "--out"},
      Empty{{"logits", "--tokens", "t", "-o", "o", "--greedy", "1", "--greedy-out", ""},
            "--greedy-out"},
      Empty{{"tokenize", "", "--text", "x"}, "--model"},
      Empty{{"tokenize", "--file", ""}, "--file"}, Empty{{"tokenize", "--decode", ""}, "--decode"});
  CAPTURE(empty.words);
  const Outcome outcome = run_program(empty.words);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, empty.named));
}

TEST_CASE("Numbers out of their range are told alike: flag, value, range") {
  struct Wrong {
    Words words;
    const char* told;
  };
  const auto wrong = GENERATE(
      Wrong{{"run", "-p", "x", "--depth", "0"}, "--depth 0: must be 1 to 256"},
      Wrong{{"run", "-p", "x", "--depth", "-3"}, "--depth -3: must be 1 to 256"},
      Wrong{{"run", "-p", "x", "--depth", "many"}, "--depth many: must be 1 to 256"},
      Wrong{{"run", "-p", "x", "-np", "257"}, "--parallel 257: must be 1 to 256"},
      Wrong{{"run", "-p", "x", "-t", "1000"}, "-t 1000: must be 0 to 256"},
      Wrong{{"run", "-p", "x", "-ub", "0"}, "-ub 0: must be 1 to "},
      Wrong{{"run", "-p", "x", "--piece", "3K"}, "--piece 3K: must be 4K to 64M"},
      Wrong{{"run", "-p", "x", "-n", "-1"}, "--predict -1: must be a number, and one that"},
      Wrong{{"run", "-p", "x", "-t", "x"}, "--threads x: must be a number, and one that"},
      Wrong{{"run", "-p", "x", "-n", "0"}, "-n 0: must be 1 or more"},
      Wrong{{"run", "-p", "x", "--repeat-last-n", "-2"}, "--repeat-last-n -2: must be -1 or more"},
      Wrong{{"estimate", "olmoe-1b-7b", "-t", "0"}, "-t 0: must be 1 to 256"},
      Wrong{{"estimate", "olmoe-1b-7b", "-c", "99999999"}, "-c 99999999: must be 0 to 16777216"},
      Wrong{{"bench", "--threads", "0"}, "--threads 0: must be 1 to 256"},
      Wrong{{"fixture", "--shape", "olmoe-1b-7b", "--type", "q8_0", "--layers", "513", "/dev/null"},
            "--layers 513: must be 1 to 512"});
  CAPTURE(wrong.words);
  const Outcome outcome = run_program(wrong.words);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(contains(outcome.err, wrong.told));
  CHECK(contains(run_program({"fixture", "--help"}).out, "1 to 512"));
}
