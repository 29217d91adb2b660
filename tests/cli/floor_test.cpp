// The program measures a drive, keeps what it found, and a run takes it from there.
#include <sys/resource.h>

#include <csignal>

#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

std::size_t entries(const std::string& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += entry.exists() ? 1 : 0;
  return count;
}

// Bytes per second that a run of these pieces at this depth is told of; 0: the cell is not there.
double rate_of(const Json& profile, std::int64_t piece_bytes, std::int64_t depth) {
  if (integer_at(profile, "piece_bytes") == piece_bytes &&
      integer_at(profile, "queue_depth") == depth)
    return number_at(profile, "bytes_per_second");
  for (const Json& cell : *at(profile, "grid").as_array())
    if (integer_at(cell, "piece_bytes") == piece_bytes && integer_at(cell, "depth") == depth)
      return number_at(cell, "bytes_per_second");
  return 0;
}

const Words quick = {"--seconds", "0.6", "--size", "16M"};

}  // namespace

TEST_CASE("floor: the profile is kept, and a run of a model on that drive uses it") {
  const TempFolder cache;
  const TempFolder place;
  const std::string svg = place.path("map.svg");
  const Setup setup = {.cache_folder = cache.path("")};
  const Outcome measured = run_program(Words{"floor", std::string(MILLRACE_BUILD_ROOT), "--json",
                                             "--svg", svg, "--seconds", "3", "--size", "64M"},
                                       setup);
  CAPTURE(measured.err);
  REQUIRE(measured.code == 0);
  const Json profile = only_json(measured);
  CHECK(contains(read_file(svg), "</svg>"));
  if (bool_at(profile, "page_cache")) return;  // the build folder lies in memory: nothing is kept
  CHECK(read_file(text_at(profile, "saved_to")).size() > 100);
  const auto run = [&](const Words& flags) {
    const Outcome outcome = run_program(
        Words{"run", "--json", "-q", "-p", "Once upon", "-n", "8", "--cache", "25%"} + flags,
        setup);
    REQUIRE(outcome.code == 0);
    return only_json(outcome);
  };
  const Json tuned = run({});
  CHECK(integer_at(tuned, "io.depth") >= 8);  // also where idle cores needed fewer
  // The profile's rate of that cell, unless the run itself read faster: then that is the floor.
  const double profiled =
      rate_of(profile, integer_at(tuned, "io.piece_bytes"), integer_at(tuned, "io.depth"));
  const double floor = number_at(tuned, "io.floor_bytes_per_second");
  REQUIRE(profiled > 0);
  if (text_at(tuned, "io.floor_source") == "reads") {
    CHECK(floor > profiled);
  } else {
    CHECK(text_at(tuned, "io.floor_source") == "profile");
    CHECK(floor == Approx(profiled));
  }
  CHECK(number_at(tuned, "io.floor_share") > 0);
  CHECK(number_at(tuned, "io.floor_share") <= 1);
  const Json forced = run({"--depth", "3", "--piece", "64K"});
  CHECK(integer_at(forced, "io.depth") == 3);
  CHECK(integer_at(forced, "io.piece_bytes") == 65536);
  // A damaged profile is as none, with a word about it.
  std::ofstream(text_at(profile, "saved_to"), std::ios::trunc) << "{";
  const Outcome warned =
      run_program({"run", "-p", "Once", "-n", "2", "--json", "--cache", "25%"}, setup);
  CHECK(warned.code == 0);
  CHECK(contains(warned.err, "this drive profile is ignored"));
  CHECK(at(only_json(warned), "io.floor_share").is_null());
}

TEST_CASE("floor: of a file too small to tell anything the drive's profile is left as it is") {
  const TempFolder cache;
  const std::uint64_t bytes = GENERATE(std::uint64_t{1}, std::uint64_t{14} << 10);
  const std::string file = std::string(MILLRACE_BUILD_ROOT) + "/too_small_for_floor";
  std::ofstream(file, std::ios::binary) << std::string(bytes, 'x');
  const Outcome outcome =
      run_program({"floor", file, "--seconds", "0.3"}, {.cache_folder = cache.path("")});
  std::filesystem::remove(file);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "best "));
  if (!contains(outcome.out, "the profile is not"))  // the build folder lies in memory
    CHECK(contains(outcome.out, "not kept: the file is too small to tell what the drive does"));
  CHECK(entries(cache.path("")) == 0);
}

TEST_CASE("floor: without --json a table names every reader, and --no-save keeps nothing") {
  const TempFolder cache;
  const TempFolder place;
  const Outcome outcome = run_program(Words{"floor", place.path(""), "--no-save"} + quick,
                                      {.cache_folder = cache.path("")});
  CHECK(outcome.code == 0);
  for (const char* text : {"io_uring, fixed buffers in huge pages", "SQPOLL", "IOPOLL", "threads",
                           "mmap", "best ", "GB/s"})
    CHECK(contains(outcome.out, text));
  CHECK(entries(place.path("")) == 0);
  CHECK(entries(cache.path("")) == 0);
}

TEST_CASE("floor: what cannot be measured ends with the path, the cause and the right code") {
  const TempFolder folder;
  struct Refused {
    Words flags;
    int code;
    const char* text;
  };
  const std::string here = folder.path("");
  const std::string empty = folder.write("empty", "");
  const std::vector<Refused> cases = {{{here + "absent"}, 2, "absent: no such file"},
                                      {{empty}, 1, "empty: is empty"},
                                      {{"/dev/null"}, 2, "not a regular file"},
                                      {{""}, 1, "empty"},
                                      {{here, "--seconds", "-1"}, 1, "--seconds"},
                                      {{here, "--size", "10%"}, 1, "--size 10%"},
                                      {{here, "--size", "1K"}, 1, "--size 1.00 KiB"},
                                      {{here, "--seconds", "0"}, 1, "above 0 and at most 86400"},
                                      {{here, "--seconds", "inf"}, 1, "above 0 and at most 86400"},
                                      {{here, "--seconds", "x"}, 1, "above 0 and at most 86400"},
                                      {{here, "--svg", here + "absent/x.svg"}, 2, "--svg"}};
  for (const Refused& refused : cases) {
    CAPTURE(refused.flags);
    const Outcome outcome = run_program(Words{"floor"} + refused.flags);
    CHECK(outcome.code == refused.code);
    CAPTURE(outcome.err);
    CHECK(contains(outcome.err, refused.text));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("floor: a full drive in the middle of the scratch file is named with its numbers") {
  const TempFolder folder;
  const auto limit_files = [] {
    const rlimit limit = {8 << 20, 8 << 20};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
  };
  const Outcome outcome =
      run_program(Words{"floor", folder.path("")} + quick, {.before_exec = limit_files});
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "stopped at 8.00 MiB of 16.0 MiB"));
  CHECK(entries(folder.path("")) == 0);
}

TEST_CASE("floor: Ctrl-C ends it with 130 and nothing is left of the scratch file") {
  const TempFolder folder;
  Process process(command({"floor", folder.path(""), "--seconds", "300", "--size", "1G"}),
                  {.terminal = true});
  REQUIRE(process.wait_for_error("scratch"));
  process.send(SIGINT);
  const Outcome outcome = process.finish();
  CHECK(outcome.code == 130);
  CHECK(entries(folder.path("")) == 0);
}

TEST_CASE("Depth and piece size of reads are held against their bounds") {
  struct Refused {
    Words flags;
    const char* text;
  };
  const auto refused = GENERATE(
      Refused{{"--depth", "0"}, "--depth"}, Refused{{"--depth", "100000"}, "--depth"},
      Refused{{"--piece", "1000"}, "--piece 1000"}, Refused{{"--piece", "1G"}, "--piece 1G"},
      Refused{{"--piece", "all"}, "--piece all"});
  const Outcome outcome = run_program(Words{"run", "-p", "x", "-n", "1"} + refused.flags);
  CHECK(outcome.code == 1);
  CHECK(contains(outcome.err, refused.text));
}
