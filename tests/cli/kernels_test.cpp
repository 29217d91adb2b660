// The program measures its kernels: small here, so that times say nothing, but bits do.
#include <chrono>
#include <csignal>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;

namespace {

const Words quick = {"kernels", "--size", "64K", "--repeats", "1", "-q"};

}  // namespace

TEST_CASE("kernels: every type on every instruction set has figures, and scalar's bits") {
  const Outcome outcome =
      run_program(quick + Words{"--tokens", "5", "--threads", "1,2", "--columns", "256", "--json"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json all = only_json(outcome);
  CHECK_FALSE(bool_at(all, "shares_judged"));
  CHECK(at(all, "limits").as_array()->size() == 4);
  std::size_t scalar = 0, tiled = 0;
  for (const Json& kernel : *at(all, "kernels").as_array()) {
    CAPTURE(kernel.dump());
    CHECK(bool_at(kernel, "same_bits"));
    CHECK(number_at(kernel, "bytes_per_second") > 0);
    CHECK(number_at(kernel, "times_scalar") > 0);
    const bool one = integer_at(kernel, "tokens") == 1;
    CHECK(at(kernel, "share").is_null() != one);
    CHECK(at(kernel, "repeats_bytes_per_second").as_array()->size() == 1);
    if (text_at(kernel, "isa") == "scalar") ++scalar;
    if (text_at(kernel, "type") == "F8_E4M3") ++tiled;
  }
  CHECK(tiled > 0);
  // Two numbers of threads; one token in L2 and from memory, many tokens in L2.
  CHECK(scalar % 6 == 0);
  CHECK(scalar / 6 >= 26);
}

TEST_CASE("kernels: the table names what was asked for, each beside the read loop") {
  const Outcome outcome = run_program(
      quick + Words{"--type", "mxfp4,q4_k", "--type", "F16", "--isa", "scalar", "-t", "1"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  for (const char* text : {"MXFP4", "Q4_K", "F16", "scalar", "weights in L2", "from memory",
                           "read loop", "same", "huge pages"})
    CHECK(contains(outcome.out, text));
  CHECK_FALSE(contains(outcome.out, "Q8_0"));
}

TEST_CASE("kernels: unrounded activations have products of their own") {
  const Json all = only_json(run_program(
      quick + Words{"--type", "Q8_0", "--activations", "f32", "--isa", "scalar", "--json"}));
  CHECK(text_at(all, "activations") == "f32");
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

TEST_CASE("kernels: Ctrl-C ends it with 130 between two repeats, not behind all of them") {
  Process process(command({"kernels", "--type", "Q8_0", "--isa", "scalar", "-t", "1", "--repeats",
                           "1000", "--size", "64M"}),
                  {.terminal = true});
  REQUIRE(process.wait_for_error("from memory"));  // a thousand times 64 MiB
  process.send(SIGINT);
  const auto sent = std::chrono::steady_clock::now();
  const Outcome outcome = process.finish();
  CHECK(outcome.code == 130);
  CHECK(std::chrono::steady_clock::now() - sent < std::chrono::seconds(2));
}
