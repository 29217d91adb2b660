// The program measures its kernels: small here, so that times say nothing, but bits do.
#include <sched.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;

namespace {

const Words quick = {"kernels", "--size", "64K", "--repeats", "1", "-q"};

// Threads that a measurement may have here.
int usable_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

// The lists of limits or kernels without what was measured: what was measured, in order.
std::vector<std::string> names_of(const Json& all, const char* list, const Words& keys) {
  std::vector<std::string> names;
  for (const Json& one : *at(all, list).as_array()) {
    std::string name;
    for (const std::string& key : keys) name += at(one, key).dump() + " ";
    names.push_back(name);
  }
  return names;
}

}  // namespace

TEST_CASE("kernels: every type on every instruction set has figures, and scalar's bits") {
  const std::size_t counts = usable_threads() > 1 ? 2 : 1;
  const Outcome outcome =
      run_program(quick + Words{"--tokens", "5", "--threads", counts == 2 ? "1,2" : "1",
                                "--columns", "256", "--json"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json all = only_json(outcome);
  CHECK_FALSE(bool_at(all, "shares_judged"));
  CHECK(at(all, "limits").as_array()->size() == 2 * counts);
  std::size_t scalar = 0, tiled = 0;
  for (const Json& kernel : *at(all, "kernels").as_array()) {
    CAPTURE(kernel.dump());
    CHECK(bool_at(kernel, "same_bits"));
    CHECK(number_at(kernel, "bytes_per_second") > 0);
    CHECK(number_at(kernel, "times_scalar") > 0);
    const auto tokens = integer_at(kernel, "tokens");
    const bool sampled =
        text_at(kernel, "isa") == "scalar" && text_at(kernel, "residency") == "memory";
    if (tokens > 1) CHECK(at(kernel, "share").is_null());
    else if (!sampled) CHECK_FALSE(at(kernel, "share").is_null());
    CHECK(text_at(kernel, "work") == (tokens == 0 ? "decode" : "product"));
    CHECK(at(kernel, "repeats_bytes_per_second").as_array()->size() == 1);
    if (text_at(kernel, "isa") == "scalar") ++scalar;
    if (text_at(kernel, "type") == "F8_E4M3") ++tiled;
  }
  CHECK(tiled > 0);
  // Each number of threads; one token, many, and decoding, in L2 and from memory.
  CHECK(scalar % (6 * counts) == 0);
  CHECK(scalar / (6 * counts) >= 26);
}

TEST_CASE("kernels: the table names what was asked for, each beside the read loop") {
  const Outcome outcome = run_program(
      quick + Words{"--type", "mxfp4,q4_k", "--type", "F16", "--isa", "scalar", "-t", "1"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  for (const char* text : {"MXFP4", "Q4_K", "F16", "scalar", "weights in L2", "from memory",
                           "read loop", "same", "huge pages", "decode", "GMA/s 32t"})
    CHECK(contains(outcome.out, text));
  CHECK_FALSE(contains(outcome.out, "Q8_0"));
}

TEST_CASE("kernels: what scalar does with a part of the rows, in a cache, is held to no limit") {
  const Outcome outcome = run_program({"kernels", "--type", "F32", "--size", "32M", "--repeats",
                                       "4", "--isa", "scalar", "-t", "1", "--json", "-q"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json all = only_json(outcome);
  std::size_t sampled = 0;
  for (const Json& kernel : *at(all, "kernels").as_array()) {
    if (text_at(kernel, "residency") != "memory") continue;
    CHECK(integer_at(kernel, "bytes") < integer_at(all, "memory_bytes") / 8);
    CHECK(at(kernel, "share").is_null());
    CHECK(at(kernel, "share_by_turns").is_null());
    ++sampled;
  }
  CHECK(sampled == 3);
}

TEST_CASE("kernels: unrounded activations have products of their own") {
  const Json all = only_json(run_program(
      quick + Words{"--type", "Q8_0", "--activations", "f32", "--isa", "scalar", "--json"}));
  CHECK(text_at(all, "activations") == "f32");
}

TEST_CASE("kernels: what a list names twice is measured once, at its first place") {
  const bool two = usable_threads() > 1;
  const Words limit_keys = {"residency", "threads"};
  const Words kernel_keys = {"type", "isa", "residency", "threads", "tokens"};
  const auto measured = [&](const Words& lists) {
    const Outcome outcome = run_program(quick + lists + Words{"--tokens", "2", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Json all = only_json(outcome);
    return std::pair(names_of(all, "limits", limit_keys), names_of(all, "kernels", kernel_keys));
  };
  const auto once = measured({"--type", "F16,Q8_0", "-t", two ? "2,1" : "1", "--isa", "scalar"});
  CHECK(once.first.size() == (two ? 4 : 2));
  CHECK(once.second.size() == (two ? 24 : 12));
  CHECK(measured({"--type", "f16,Q8_0,F16,q8_0", "-t", two ? "2,1,2" : "1,1", "--isa",
                  "scalar,scalar", "--isa", "scalar"}) == once);
}

TEST_CASE("kernels: more threads than cores are refused, for CPU time would flatter them") {
  const std::string most = std::to_string(usable_threads());
  const std::string more = std::to_string(usable_threads() + 1);
  const Outcome outcome = run_program(quick + Words{"-t", "1," + more});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "--threads " + more + ": must be 1 to " + most + ", the cores"));
  const auto keep_one_core = [] {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof(one), &one) == 0;
  };
  const Outcome alone = run_program(quick + Words{"-t", "2"}, {.before_exec = keep_one_core});
  CAPTURE(alone.err);
  CHECK(alone.code == 1);
  CHECK(contains(alone.err, "--threads 2: must be 1 to 1, the cores"));
}

TEST_CASE("kernels: memory that is not there is refused with all flags that take it") {
  const Words one = {"kernels", "--type", "Q8_0", "-t", "1", "--repeats", "1", "-q"};
  const Outcome outcome = run_program(one + Words{"--size", "1000000T"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 4);
  for (const char* flag : {"--size", "--threads", "--tokens", "--columns", "takes"})
    CHECK(contains(outcome.err, flag));
  // Where the machine has it, but the process may not take it.
  const auto limit_space = [] {
    const rlimit limit{512u << 20, 512u << 20};
    return setrlimit(RLIMIT_AS, &limit) == 0;
  };
  const Outcome refused =
      run_program(one + Words{"--size", "64K", "--tokens", "4096", "--columns", "65536"},
                  {.before_exec = limit_space});
  CAPTURE(refused.err);
  CHECK(refused.code == 4);
  for (const char* flag : {"--size", "--threads", "--tokens", "--columns"})
    CHECK(contains(refused.err, flag));
}

TEST_CASE("kernels: types, instruction sets and numbers that there are not are refused by name") {
  struct Refused {
    Words flags;
    const char* text;
  };
  const std::vector<Refused> cases = {
      {{"--type", "Q9_9"}, "--type Q9_9"},
      {{"--type", ""}, "--type"},
      {{"--isa", "sse9"}, "--isa sse9"},
      {{"--threads", "0"}, "--threads 0"},
      {{"--threads", "100000"}, "--threads 100000"},
      {{"--threads", "many"}, "--threads"},
      {{"--columns", "100"}, "--columns 100: must be a multiple of 256"},
      {{"--columns", "0"}, "--columns 0"},
      {{"--tokens", "0"}, "--tokens 0: must be 1 to"},
      {{"--tokens", "99999"}, "--tokens 99999"},
      {{"--repeats", "0"}, "--repeats 0: must be 1 to 1000"},
      {{"--size", "10%"}, "--size 10%"},
      {{"--activations", "q9"}, "q9"}};
  for (const Refused& refused : cases) {
    CAPTURE(refused.flags);
    const Outcome outcome = run_program(quick + refused.flags);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(contains(outcome.err, refused.text));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("kernels: Ctrl-C ends it with 130 between two repeats and prints what is done") {
  Process process(command({"kernels", "--type", "Q8_0", "--isa", "scalar", "-t", "1", "--repeats",
                           "1000", "--size", "64M"}),
                  {.terminal = true});
  REQUIRE(process.wait_for_error("from memory"));  // a thousand times 64 MiB
  process.send(SIGINT);
  const auto sent = std::chrono::steady_clock::now();
  const Outcome outcome = process.finish();
  CHECK(outcome.code == 130);
  CHECK(contains(outcome.out, "weights in L2, 1 thread: the read loop does"));
  CHECK(contains(outcome.out, "Q8_0     scalar"));
  CHECK(contains(outcome.out, "cancelled: this is what was measured until then"));
  CHECK(std::chrono::steady_clock::now() - sent < std::chrono::seconds(2));
}
