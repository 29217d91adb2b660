// Recorded routings read back: forms, checks, and the calls that rows stand for.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "prefetch/replay.h"
#include "prefetch/routing_record.h"
#include "prefetch/routing_walks.h"
#include "tests/support/temp_folder.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

const std::string head =
    "# model=M arch=qwen3moe n_layer=2 n_expert=8 n_expert_used=2 expert_bytes=4096\n"
    "turn,phase,step,layer,experts,weights\n";

std::string refusal(const std::string& text) {
  const auto record = parse_routing(text, "t.csv");
  REQUIRE_FALSE(record);
  CHECK(record.error().code == ErrorCode::usage);
  return record.error().what;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("routing record: what --trace wrote is read back, row for row") {
  const TempFolder folder;
  const std::string path = folder.path("trace.csv");
  RoutingTraceHeader header{.model = "Some Model",
                            .architecture = "qwen3moe",
                            .layers = 2,
                            .experts = 8,
                            .experts_used = 2,
                            .expert_bytes = {4096, 8192},
                            .batch_tokens = 16};
  auto trace = RoutingTrace::create(path, header);
  REQUIRE(trace);
  const ExpertIndex experts[] = {7, 2};
  const float weights[] = {0.75F, 0.25F};
  (*trace)->record(3, RoutingPhase::generation, 12, 1, experts, weights);
  REQUIRE((*trace)->finish());
  const auto record = read_routing(path);
  REQUIRE(record);
  CHECK(record->header.model == "Some-Model");
  CHECK(record->header.experts == 8);
  CHECK(record->header.expert_bytes == std::vector<std::uint64_t>{4096, 8192});
  CHECK(record->header.batch_tokens == 16);
  REQUIRE(record->rows.size() == 1);
  CHECK(record->rows[0].turn == 3);
  CHECK(record->rows[0].phase == RoutingPhase::generation);
  CHECK(record->rows[0].step == 12);
  CHECK(record->rows[0].layer == 1);
  CHECK(record->experts == std::vector<ExpertIndex>{7, 2});
  CHECK(record->weights == std::vector<float>{0.75F, 0.25F});

  const std::string copy = folder.path("copy.csv");
  REQUIRE(write_routing(*record, copy));
  const auto again = read_routing(copy);
  REQUIRE(again);
  CHECK(again->experts == record->experts);
  CHECK(again->header.batch_tokens == 16);
}

TEST_CASE("routing record: columns of single experts, and a file without a first line, are known") {
  const auto record = parse_routing(
      "seq,pos,token,layer,e0,e1,w0,w1\n0,0,3189,0,5,2,0.7,0.3\n0,0,3189,1,0,1,0.6,0.4\r\n", "t");
  REQUIRE(record);
  CHECK(record->header.layers == 2);
  CHECK(record->header.experts == 6);
  CHECK(record->header.experts_used == 2);
  CHECK(record->rows[1].phase == RoutingPhase::generation);
  CHECK(record->experts == std::vector<ExpertIndex>{5, 2, 0, 1});
}

TEST_CASE("routing record: compressed files are read, damaged ones refused") {
  const TempFolder folder;
  const std::string path = folder.write("t.csv", head + "0,0,0,0,1 2,0.5 0.5\n");
  REQUIRE(std::system(("gzip -k " + path).c_str()) == 0);
  const auto record = read_routing(path + ".gz");
  REQUIRE(record);
  CHECK(record->rows.size() == 1);
  const std::string broken = folder.write("b.csv.gz", std::string("\x1f\x8b\x08\x00garbage", 11));
  const auto refused = read_routing(broken);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.find(broken) != std::string::npos);
  // What inflates to far more than it is must not be held in memory before it is refused.
  const std::string bomb = folder.path("bomb.csv.gz");
  REQUIRE(std::system(("head -c 600000000 /dev/zero | gzip -1 > " + bomb).c_str()) == 0);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const auto exploded = read_routing(bomb);
  getrusage(RUSAGE_SELF, &after);
  REQUIRE_FALSE(exploded);
  CHECK(exploded.error().code == ErrorCode::usage);
  CHECK(exploded.error().what == bomb + ":1: longer than 65536 bytes: this is no routing trace");
  CHECK(after.ru_maxrss - before.ru_maxrss < 64 * 1024);
  const auto absent = read_routing(folder.path("no.csv"));
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == ErrorCode::io);
}

TEST_CASE("routing record: malformed lines are refused with file, line and what was wrong") {
  CHECK(refusal("") == "t.csv is empty");
  CHECK(has(refusal(head), "t.csv:2: there are no rows"));
  CHECK(has(refusal("hello\n1,2\n"), "t.csv:1: is no routing trace"));
  CHECK(has(refusal(head + "0,0,0,0,1 2,0.5 0.5\n0,2,0,0,1 2,0.5 0.5\n"), "t.csv:4: turn, phase"));
  CHECK(has(refusal(head + "0,0,0,0,1 x,0.5 0.5\n"), "t.csv:3: expert x: must be a number"));
  CHECK(has(refusal(head + "0,0,0,0,1 2,0.5\n"), "t.csv:3: fewer weights than experts"));
  CHECK(has(refusal(head + "0,0,0,0,1 2,0.5 0.5 0.1\n"), "more weights than experts"));
  CHECK(has(refusal(head + "0,0,0,0,1 1,0.5 0.5\n"), "expert 1 twice"));
  CHECK(has(refusal(head + "0,0,0,0,,\n"), "t.csv:3: there are no experts"));
  CHECK(has(refusal(head + "0,0,0,0,1 2,0.5 0.5,9\n"), "more fields than columns"));
  CHECK(has(refusal(head + "0,0,0,99999,1 2,0.5 0.5\n"), "layer 99999"));
  CHECK(has(refusal(head + "0,0,0,5,1 2,0.5 0.5\n"),
            "t.csv:3: step 0 layer 5 (expert 2) is outside of what its first line says"));
  CHECK(has(refusal(head + "0,0,0,0,1 9,0.5 0.5\n"), "n_expert 8"));
  for (const char* const weight : {"nan", "inf", "-inf", "-0.5"})
    CHECK(has(refusal(head + "0,0,0,0,1 2,0.5 " + weight + "\n"),
              "t.csv:3: weight " + std::string(weight) + ": must be finite and not negative"));
  CHECK(has(refusal(head + "0,0,0,0,1 2,0.5 0.5\n0,0,0,1,1,0.5\n"),
            "t.csv:4: experts of this row: 1, "));
  CHECK(has(refusal(head + "0,0,0,0,1 9999,0.5 0.5\n"), "expert 9999"));
  CHECK(has(refusal(head + "0,0,0,0,1 -1,0.5 0.5\n"), "expert -1: must be a number from 0 to"));
  for (const char* const weight : {"1e39", "0x1p3"})
    CHECK(has(refusal(head + "0,0,0,0,1 2,0.5 " + weight + "\n"),
              "weight " + std::string(weight) + ": must be a decimal number"));
  CHECK(has(refusal("# n_expert_used=5\nturn,phase,step,layer,experts,weights\n"
                    "0,0,0,0,1 2 3 4,0.1 0.1 0.1 0.1\n"),
            "t.csv:3: experts of this row: 4, by the first line: n_expert_used=5"));
  CHECK(has(refusal("# n_layer=0\n"), "n_layer=0"));
  CHECK(has(refusal("# expert_bytes=12,\n"), "expert_bytes"));
  CHECK(has(refusal("seq,pos,token,layer,e0,e1,w0,w1\n0,0,1,0,5,2,0.7\n"), "column 8"));
}

TEST_CASE("routing calls: a prompt part is one call per layer, its experts in order of mention") {
  const auto record = parse_routing(head +
                                        "0,0,0,0,1 2,0.5 0.5\n0,0,1,0,2 3,0.5 0.5\n"
                                        "0,0,0,1,4 5,0.5 0.5\n0,0,1,1,4 5,0.5 0.5\n"
                                        "0,1,2,0,1 2,0.5 0.5\n0,1,2,1,1 2,0.5 0.5\n",
                                    "t");
  REQUIRE(record);
  const auto calls = routing_calls(*record);
  REQUIRE(calls.size() == 4);
  CHECK(calls[0].tokens == 2);
  CHECK(calls[0].experts == std::vector<ExpertIndex>{1, 2, 3});
  CHECK(calls[0].chosen_by == std::vector<std::uint32_t>{1, 2, 1});
  CHECK(calls[1].experts == std::vector<ExpertIndex>{4, 5});
  CHECK(calls[2].tokens == 1);
  CHECK(calls[3].phase == RoutingPhase::generation);

  auto token_by_token = *record;
  token_by_token.header.batch_tokens = 1;
  CHECK(routing_calls(token_by_token).size() == 6);
}

TEST_CASE("routing calls: shuffling keeps every token whole and loses none") {
  std::string text = head;
  for (int step = 0; step < 40; ++step)
    for (int layer = 0; layer < 2; ++layer)
      text += "0,1," + std::to_string(step) + "," + std::to_string(layer) + "," +
              std::to_string(step % 8) + " " + std::to_string((step + 1) % 8) + ",0.5 0.5\n";
  const auto record = parse_routing(text, "t");
  REQUIRE(record);
  const auto calls = routing_calls(*record);
  const auto shuffled = shuffled_calls(calls, 1);
  REQUIRE(shuffled.size() == calls.size());
  bool moved = false;
  std::vector<int> first_counts(8, 0);
  for (std::size_t i = 0; i < shuffled.size(); i += 2) {
    CHECK(shuffled[i].layer == 0);
    CHECK(shuffled[i + 1].layer == 1);
    CHECK(shuffled[i].experts == shuffled[i + 1].experts);
    moved = moved || shuffled[i].experts != calls[i].experts;
    ++first_counts[shuffled[i].experts.front()];
  }
  CHECK(moved);
  CHECK(first_counts == std::vector<int>(8, 5));
}

TEST_CASE("routing record: lines are the same wherever the parts of a file end") {
  const TempFolder folder;
  std::string text = head;
  for (int step = 0; text.size() < 600'000; ++step)
    text += "0,1," + std::to_string(step) + ",0,1 2,0.5 0.25\r\n";
  text += "0,1,999999999,0,3 4,0.5 0.25\n";
  const auto whole = parse_routing(text, "t.csv");
  const auto read = read_routing(folder.write("t.csv", text));
  REQUIRE(whole);
  REQUIRE(read);
  CHECK(read->rows.size() == whole->rows.size());
  CHECK(read->experts == whole->experts);
  CHECK(read->weights == whole->weights);
  CHECK(read->rows.back().step == 999999999);
}

TEST_CASE("routing record: a file that was cut off is refused, plain or compressed") {
  const TempFolder folder;
  CHECK(has(refusal(head + "0,1,0,0,1 2,0.5 0.5\n0,1,0,1,1 2,0.5 0."),
            "t.csv:4: the line does not end: the file was cut off there"));
  const std::string whole = head + "0,1,0,0,1 2,0.5 0.5\n";
  for (std::size_t length = 1; length < whole.size(); ++length)
    if (whole[length - 1] != '\n')
      CHECK(has(refusal(whole.substr(0, length)), "the line does not end: the file was cut off"));
  CHECK(has(refusal("hello"), "is no routing trace"));
  std::string text = head;
  for (int step = 0; step < 20'000; ++step)
    text += "0,1," + std::to_string(step) + ",0," + std::to_string(step * 7 % 8) + ",0.5\n";
  text.replace(text.find("used=2"), 6, "used=1");
  const std::string path = folder.write("t.csv", text);
  REQUIRE(read_routing(path));
  REQUIRE(std::system(("gzip -k " + path + " && truncate -s -100 " + path + ".gz").c_str()) == 0);
  const auto cut = read_routing(path + ".gz");
  REQUIRE_FALSE(cut);
  CHECK(has(cut.error().what, path + ".gz"));
  CHECK(cut.error().what.rfind(path) == 0);  // named once
}

namespace {

// Two prompt parts of 3 and 2 tokens, then 4 tokens, through layers 1, 2 and 5 of 6.
std::vector<std::string> walking_rows() {
  std::vector<std::string> rows;
  const auto part = [&](int phase, int first, int steps) {
    for (const int layer : {1, 2, 5})
      for (int step = first; step < first + steps; ++step)
        rows.push_back("0," + std::to_string(phase) + "," + std::to_string(step) + "," +
                       std::to_string(layer) + ",1 2,0.5 0.5\n");
  };
  part(0, 0, 3);
  part(0, 3, 2);
  for (int step = 5; step < 9; ++step) part(1, step, 1);
  return rows;
}

Result<RoutingRecord> parse_rows(const std::vector<std::string>& rows, std::size_t left_out,
                                 const std::string& more = "") {
  std::string text =
      "# n_layer=6 n_expert=8 n_expert_used=2" + more + "\nturn,phase,step,layer,experts,weights\n";
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (i != left_out) text += rows[i];
  return parse_routing(text, "t.csv");
}

}  // namespace

TEST_CASE("routing record: any row that is missing in the middle is found out, with its line") {
  const auto rows = walking_rows();
  REQUIRE(parse_rows(rows, rows.size(), " batch=4"));
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    CAPTURE(i, rows[i]);
    const auto record = parse_rows(rows, i, " batch=4");
    REQUIRE_FALSE(record);
    CHECK(record.error().code == ErrorCode::usage);
    CHECK(has(record.error().what, "t.csv:"));
  }
  const auto record = parse_rows(rows, 16, " batch=4");  // step 5, layer 2
  REQUIRE_FALSE(record);
  CHECK(record.error().what == "t.csv:19: a row is missing before this one: layer 2 of step 5");
}

TEST_CASE("routing record: what the last token lacks is told") {
  std::vector<std::string> rows = walking_rows();
  auto record = parse_rows(rows, rows.size());
  REQUIRE(record);
  CHECK(incomplete_end(*record).empty());
  rows.pop_back();
  record = parse_rows(rows, rows.size());
  REQUIRE(record);
  CHECK(incomplete_end(*record) == "the last token is incomplete: layers 1 to 2 of 6");
}

TEST_CASE("routing record: a run that was interrupted, and the last layer's wanted tokens alone") {
  auto rows = walking_rows();
  const auto interrupted = parse_rows({rows.begin(), rows.end() - 2}, rows.size(), " batch=4");
  CHECK(interrupted);
  // Other recorders have those tokens in the last layer whose logits were asked for.
  for (const std::size_t i : {6, 7}) {
    CHECK(parse_rows(rows, i));
    CHECK_FALSE(parse_rows(rows, i, " batch=4"));
  }
  CHECK_FALSE(parse_rows(rows, 4));
  std::swap(rows[15], rows[16]);
  CHECK_FALSE(parse_rows(rows, rows.size()));
  rows = walking_rows();
  rows.insert(rows.begin() + 16, rows[16]);  // twice
  CHECK_FALSE(parse_rows(rows, rows.size()));
}
