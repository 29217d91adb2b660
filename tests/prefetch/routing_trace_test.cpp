// The CSV of routing.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "prefetch/routing_trace.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

std::string content(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

RoutingTraceHeader header() {
  return {.model = "Some Model\n7B",
          .architecture = "qwen3moe",
          .layers = 48,
          .experts = 128,
          .experts_used = 3,
          .expert_bytes = {2654208, 3059712}};
}

}  // namespace

TEST_CASE("routing trace: a comment with the model, a header, one row per step and layer") {
  const TempFolder folder;
  const std::string path = folder.path("trace.csv");
  auto trace = RoutingTrace::create(path, header());
  REQUIRE(trace);
  const ExpertIndex experts[] = {60, 49, 7};
  const float weights[] = {0.215444f, 0.5f, 0.0904526f};
  (*trace)->record(0, RoutingPhase::prompt, 0, 0, experts, weights);
  (*trace)->record(2, RoutingPhase::generation, 155, 47, experts, weights);
  REQUIRE((*trace)->finish());
  CHECK(content(path) ==
        "# model=Some-Model-7B arch=qwen3moe n_layer=48 n_expert=128 n_expert_used=3 "
        "expert_bytes=2654208,3059712\n"
        "turn,phase,step,layer,experts,weights\n"
        "0,0,0,0,60 49 7,0.215444 0.5 0.0904526\n"
        "2,1,155,47,60 49 7,0.215444 0.5 0.0904526\n");
}

TEST_CASE("routing trace: many rows arrive whole, and recording allocates nothing") {
  const TempFolder folder;
  const std::string path = folder.path("trace.csv");
  auto trace = RoutingTrace::create(path, header());
  REQUIRE(trace);
  std::vector<ExpertIndex> experts(32, 1023);
  std::vector<float> weights(32, -1.17549e-38f);
  reset_allocations();
  for (std::uint64_t step = 0; step < 2000; ++step)
    (*trace)->record(0xffffffff, RoutingPhase::generation, ~std::uint64_t{0} - step, 511, experts,
                     weights);
  CHECK(allocations().calls == 0);
  trace->reset();  // the destructor writes the rest
  std::ifstream in(path);
  std::string line;
  std::size_t rows = 0;
  std::size_t whole = 0;
  while (std::getline(in, line)) {
    ++rows;
    whole += line.starts_with("4294967295,1,184467440737095") && line.ends_with("-1.17549e-38");
  }
  CHECK(rows == 2002);
  CHECK(whole == 2000);
}

TEST_CASE("routing trace: a path that cannot be written is an error with its name") {
  const TempFolder folder;
  const std::string path = folder.path("missing/trace.csv");
  const auto refused = RoutingTrace::create(path, header());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::io);
  CHECK(refused.error().what.find(path) != std::string::npos);
}

TEST_CASE("routing trace: a full disk is told at the end") {
  if (!std::filesystem::exists("/dev/full")) return;
  const auto refused = RoutingTrace::create("/dev/full", header());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.find("ENOSPC") != std::string::npos);
}
