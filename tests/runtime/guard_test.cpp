// The guard: its rule by samples, what it reads from the system, and runs under pressure that the
// test makes: the same bits at whatever moment the pool shrinks and grows.
#include "runtime/guard/pool_guard.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>

#include "runtime/base/log.h"
#include "runtime/generate.h"
#include "runtime/report.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;
using millrace::testing::TempFolder;

namespace {

constexpr std::uint64_t second = 1'000'000'000;

// ---- the rule

constexpr std::uint64_t available = 10 * GiB;
constexpr std::uint64_t planned = 9 * GiB;
const std::uint64_t low = available / GuardRule::low_divisor;

PressureSample sample_of(std::uint64_t left, std::uint64_t waited_us = 0,
                         std::uint64_t faults = 0) {
  return {.left_bytes = left, .waited_us = waited_us, .major_faults = faults};
}

// A rule that has seen calm for a while.
GuardRule calm_rule(std::uint64_t now_ns) {
  GuardRule rule(available, planned);
  for (std::uint64_t at = 0; at <= now_ns; at += second) rule.judge(at, sample_of(GiB));
  return rule;
}

// ---- runs

// Each look is a second after the one before.
class StepClock final : public Clock {
 public:
  std::uint64_t now_ns() noexcept override { return now_ += second; }

 private:
  std::atomic<std::uint64_t> now_ = second;
};

// Pressure as the test says, by the number of the look. Each look under pressure takes a segment.
class ScriptedPressure final : public PressureSource {
 public:
  explicit ScriptedPressure(std::function<bool(unsigned)> pressing)
      : pressing_(std::move(pressing)) {}
  PressureSample sample() noexcept override {
    if (pressing_(looks_++)) faults_ += 1'000'000;
    return {.left_bytes = std::uint64_t{1} << 50, .waited_us = 0, .major_faults = faults_};
  }
  const std::string& waiting_unknown() const noexcept override { return known_; }
  unsigned looks() const { return looks_; }

 private:
  std::function<bool(unsigned)> pressing_;
  unsigned looks_ = 0;
  std::uint64_t faults_ = 0;
  std::string known_;
};

struct Settings {
  ReaderKind io = ReaderKind::automatic;
  const char* prefetch = "off";
  std::uint32_t batch = 512;
  double cache_percent = 50;
};

struct Outcome {
  std::uint64_t hash = 0;
  std::uint64_t misses = 0;
  GuardFigures guard;
  Json report;
  std::string table;
  std::uint32_t registered = 0;
};

// 14 prompt tokens and 10 more; without a source the guard is off.
Outcome run(const Settings& settings, PressureSource* source) {
  set_log_level(LogLevel::error);  // its warnings are meant
  StepClock clock;
  EngineConfig config;
  config.model_path = embedded_model();
  config.io = settings.io;
  config.prefetch = settings.prefetch;
  config.batch_tokens = settings.batch;
  config.cache = {SizeSpec::Kind::percent, 0, settings.cache_percent};
  config.context = 128;
  config.threads = 2;
  config.guard = {
      .on = source != nullptr, .segment_bytes = 1 * MiB, .source = source, .clock = &clock};
  const auto made = open_engine(config);
  GenerateOptions options;
  for (TokenId id = 0; id < 14; ++id) options.prompt.push_back(300 + id * 7);
  options.tokens_max = 11;
  options.sampling.temperature = 0;
  options.ignore_eos = true;
  const auto result = generate(*made->engine, options, [](std::string_view) {});
  REQUIRE(result);
  if (result->error) FAIL(result->error->what);
  Outcome outcome;
  outcome.hash = result->state_hash;
  outcome.misses = made->engine->counters().experts.misses;
  outcome.report = report_json(*made->engine, *result);
  outcome.table = report_table(*made->engine, *result);
  outcome.registered = made->engine->reader().registered_buffers();
  if (made->engine->guard() != nullptr) outcome.guard = made->engine->guard()->figures();
  return outcome;
}

// While it lives, this thread and those that it starts may lock no more than 64 KiB.
class LittleLockable {
 public:
  LittleLockable() {
    getrlimit(RLIMIT_MEMLOCK, &limit_);
    const rlimit little = {64 * KiB, limit_.rlim_max};
    setrlimit(RLIMIT_MEMLOCK, &little);
    syscall(SYS_capget, &header_, data_);
    __user_cap_data_struct less[2] = {data_[0], data_[1]};
    less[0].effective &= ~(1U << CAP_IPC_LOCK);
    syscall(SYS_capset, &header_, less);
  }
  ~LittleLockable() {
    syscall(SYS_capset, &header_, data_);
    setrlimit(RLIMIT_MEMLOCK, &limit_);
  }
  LittleLockable(const LittleLockable&) = delete;
  LittleLockable& operator=(const LittleLockable&) = delete;

 private:
  rlimit limit_ = {};
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data_[2] = {};
};

std::int64_t number_of(const Json& report, const char* key) {
  std::int64_t value = -1;
  REQUIRE(report.find("guard")->find(key)->get_integer(value));
  return value;
}

std::uint64_t data_bytes() {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("VmData:")) return std::stoull(line.substr(7)) * KiB;
  return 0;
}

}  // namespace

TEST_CASE("guard rule: with room nothing moves, and a plan at its limit is no pressure") {
  GuardRule rule(available, planned);
  for (std::uint64_t at = 0; at < 60 * second; at += second / 10) {
    const GuardRule::Verdict verdict =
        rule.judge(at, sample_of(3 * low, at / 100'000, at / second));
    CHECK(verdict.give_bytes == 0);
  }
  for (const std::uint64_t plan : {available / 100 * 95, available, 2 * available}) {
    GuardRule full(available, plan);
    const std::uint64_t left = available - std::min(available, plan);
    const GuardRule::Verdict verdict = full.judge(second, sample_of(left));
    CHECK(verdict.give_bytes == 0);
  }
}

TEST_CASE("guard rule: little left gives up as much as brings back twice the mark, at once") {
  GuardRule rule = calm_rule(60 * second);
  const GuardRule::Verdict at_mark = rule.judge(61 * second, sample_of(low));
  CHECK(at_mark.give_bytes == 0);
  CHECK(at_mark.take_bytes == 0);
  CHECK(at_mark.look_often);
  const GuardRule::Verdict below = rule.judge(62 * second, sample_of(low - 1));
  CHECK(below.cause == PressureCause::left);
  CHECK(below.give_bytes == low + 1);
  CHECK(rule.judge(63 * second, sample_of(0)).give_bytes == 2 * low);
  CHECK(rule.judge(64 * second, sample_of(10 * low)).look_often == false);
}

TEST_CASE("guard rule: waiting counts while little is left, as a share of half a second and more") {
  GuardRule rule = calm_rule(60 * second);
  const std::uint64_t start = 60 * second;
  CHECK(rule.judge(start + second / 4, sample_of(3 * low, 200'000)).give_bytes == 0);  // too soon
  const GuardRule::Verdict waited = rule.judge(start + second, sample_of(3 * low, 200'000));
  CHECK(waited.cause == PressureCause::waiting);
  CHECK(waited.give_bytes == 1);
  CHECK(rule.judge(start + 2 * second, sample_of(3 * low, 290'000)).give_bytes == 0);
  CHECK(rule.judge(start + 3 * second, sample_of(8 * low, 900'000)).give_bytes == 0);  // not ours
  PressureSample unknown = sample_of(3 * low);
  unknown.waited_us = PressureSample::unknown;
  CHECK(rule.judge(start + 4 * second, unknown).give_bytes == 0);
  CHECK(rule.judge(start + 5 * second, sample_of(3 * low, 9'000'000)).give_bytes == 0);
}

TEST_CASE("guard rule: faults count at any time, and where nothing else is known") {
  GuardRule rule(available, planned);
  PressureSample blind;
  CHECK(rule.judge(second, blind).give_bytes == 0);
  blind.major_faults = 90;
  CHECK(rule.judge(2 * second, blind).give_bytes == 0);
  blind.major_faults = 200;
  const GuardRule::Verdict faults = rule.judge(3 * second, blind);
  CHECK(faults.cause == PressureCause::faults);
  CHECK(faults.give_bytes == 1);
  CHECK(rule.judge(4 * second, blind).give_bytes == 0);
  CHECK(rule.judge(9 * second, blind).take_bytes == PressureSample::unknown);
}

TEST_CASE("guard rule: the pool grows after calm, slowly, and leaves twice the mark free") {
  GuardRule rule(available, planned);
  REQUIRE(rule.judge(second, sample_of(0)).give_bytes > 0);
  CHECK(rule.judge(2 * second, sample_of(5 * low)).take_bytes == 0);
  CHECK(rule.judge(6 * second, sample_of(5 * low)).take_bytes == 3 * low);
  rule.grew(6 * second);
  CHECK(rule.judge(6 * second + second / 2, sample_of(5 * low)).take_bytes == 0);
  CHECK(rule.judge(7 * second, sample_of(2 * low)).take_bytes == 0);
  CHECK(rule.judge(7 * second, sample_of(2 * low + 5)).take_bytes == 5);
}

TEST_CASE("guard rule: trouble soon after growing doubles the calm that is asked for") {
  GuardRule rule(available, planned);
  std::uint64_t now = second;
  std::uint64_t needed = GuardRule::calm_ns;
  for (int round = 0; round < 10; ++round) {
    REQUIRE(rule.judge(now, sample_of(0)).give_bytes > 0);
    CHECK(rule.judge(now + needed - 1, sample_of(9 * low)).take_bytes == 0);
    now += needed;
    REQUIRE(rule.judge(now, sample_of(9 * low)).take_bytes > 0);
    if (round % 2 == 0) rule.grew(now);
    else rule.failed_to_grow(now);
    if (round % 2 == 0) needed = std::min(2 * needed, GuardRule::calm_ns_max);
    now += second;
  }
}

TEST_CASE("guard sources: what is left, waiting and faults come from the system's files") {
  const TempFolder folder;
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path whole = folder.path(path);
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole, std::ios::binary) << text;
  };
  write("proc/meminfo", "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:   4096 kB\n");
  SECTION("a system without PSI says so") {
    const auto source = make_system_pressure(folder.path(""));
    CHECK(source->sample().left_bytes == 4 * MiB);
    CHECK(source->sample().waited_us == PressureSample::unknown);
    CHECK(source->waiting_unknown().find("PSI") != std::string::npos);
  }
  SECTION("the whole system's pressure") {
    write("proc/pressure/memory",
          "some avg10=1.00 avg60=0.10 avg300=0.00 total=1234\nfull total=7\n");
    const auto source = make_system_pressure(folder.path(""));
    CHECK(source->waiting_unknown().empty());
    CHECK(source->sample().waited_us == 1234);
    write("proc/pressure/memory", "some avg10=1.00 avg60=0.10 avg300=0.00 total=99999999999\n");
    CHECK(source->sample().waited_us == 99999999999);
    write("proc/pressure/memory", "garbage");
    CHECK(source->sample().waited_us == PressureSample::unknown);
  }
  SECTION("the own group's, which may change its limit at any time") {
    write("proc/pressure/memory", "some avg10=1.00 total=1\n");
    write("proc/self/cgroup", "0::/job\n");
    write("sys/fs/cgroup/job/memory.pressure", "some avg10=1.00 total=77\n");
    write("sys/fs/cgroup/job/memory.max", "max\n");
    write("sys/fs/cgroup/job/memory.current", "1048576\n");
    write("sys/fs/cgroup/job/memory.stat", "inactive_file 4096\n");
    const auto source = make_system_pressure(folder.path(""));
    CHECK(source->sample().waited_us == 77);
    CHECK(source->sample().left_bytes == 4 * MiB);
    write("sys/fs/cgroup/job/memory.max", "2097152\n");
    CHECK(source->sample().left_bytes == 1 * MiB + 4096);
  }
  SECTION("the real ones") {
    const auto source = make_system_pressure();
    CHECK(source->sample().left_bytes > 0);
    CHECK(source->sample().left_bytes < PressureSample::unknown);
  }
}

TEST_CASE("guard: the pool shrinks and grows during a run, and the bits stay") {
  const std::uint64_t expected = run({}, nullptr).hash;
  for (const ReaderKind io : {ReaderKind::automatic, ReaderKind::threads}) {
    for (const char* const prefetch : {"off", "router1", "wrong"}) {
      for (const std::uint32_t batch : {1u, 5u, 512u}) {
        INFO((io == ReaderKind::threads ? "threads" : "auto")
             << ", prefetch " << prefetch << ", -ub " << batch);
        // Three segments at a time, and calm for longer than it takes to get them back.
        ScriptedPressure pressure([](unsigned look) { return look % 30 > 4 && look % 30 < 8; });
        const Outcome outcome = run({io, prefetch, batch}, &pressure);
        CHECK(outcome.hash == expected);
        CHECK(outcome.guard.shrinks >= 6);
        CHECK(outcome.guard.grows >= 3);
        CHECK(outcome.guard.by_cause[static_cast<int>(PressureCause::faults)] ==
              outcome.guard.shrinks);
        CHECK(outcome.guard.bytes_least < outcome.guard.bytes_most);
        CHECK_FALSE(outcome.guard.stuck);
      }
    }
  }
}

TEST_CASE("guard: whenever the pressure comes, the bits stay") {
  const std::uint64_t expected = run({}, nullptr).hash;
  for (unsigned at = 0; at < 240; at += 17) {
    INFO("from look " << at);
    ScriptedPressure pressure([at](unsigned look) { return look >= at && look < at + 4; });
    const Outcome outcome =
        run({.prefetch = at % 2 == 0 ? "off" : "router1", .batch = 4}, &pressure);
    REQUIRE(pressure.looks() > at + 4);
    CHECK(outcome.hash == expected);
    CHECK(outcome.guard.shrinks > 0);
  }
}

TEST_CASE("guard: without registered buffers it does the same") {
  const std::uint64_t expected = run({}, nullptr).hash;
  const LittleLockable limited;
  ScriptedPressure pressure([](unsigned look) { return look % 20 == 7; });
  const Outcome outcome = run({}, &pressure);
  if (outcome.registered > 0) WARN("buffers are registered all the same");
  CHECK(outcome.hash == expected);
  CHECK(outcome.guard.shrinks > 0);
  CHECK(outcome.guard.grows > 0);
}

TEST_CASE("guard: under lasting pressure the smallest cache stays, and the run goes on") {
  const Outcome off = run({}, nullptr);
  ScriptedPressure pressure([](unsigned) { return true; });
  const Outcome outcome = run({}, &pressure);
  CHECK(outcome.hash == off.hash);
  CHECK(outcome.misses > off.misses);
  CHECK(outcome.guard.grows == 0);
  CHECK(outcome.guard.bytes_now == outcome.guard.bytes_least);
  constexpr std::uint64_t token_slots = 4, slot = 104 * KiB;
  CHECK(outcome.guard.bytes_least >= token_slots * slot);
  CHECK(outcome.guard.bytes_least <= token_slots * slot + MiB);
}

TEST_CASE("guard: memory that is not given again leaves the pool small until it is") {
  const std::uint64_t expected = run({}, nullptr).hash;
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_DATA, &before) == 0);
  ScriptedPressure pressure([&](unsigned look) {
    if (look >= 12 && look < 60) {  // with room for small things, but not for a segment
      const rlimit little = {data_bytes() + 300 * KiB, before.rlim_max};
      setrlimit(RLIMIT_DATA, &little);
    } else if (look == 60) {
      setrlimit(RLIMIT_DATA, &before);
    }
    return look > 5 && look < 9;
  });
  const Outcome outcome = run({.batch = 1}, &pressure);
  setrlimit(RLIMIT_DATA, &before);
  CHECK(outcome.hash == expected);
  CHECK(outcome.guard.shrinks == 3);
  CHECK(outcome.guard.refused > 0);
  CHECK(outcome.guard.grows == 3);
  CHECK(outcome.guard.bytes_now == outcome.guard.bytes_most);
}

TEST_CASE("guard: the report tells what it did, or that it was off") {
  ScriptedPressure pressure([](unsigned look) { return look % 40 == 7; });
  const Outcome outcome = run({}, &pressure);
  const GuardFigures& guard = outcome.guard;
  CHECK(*outcome.report.find("guard")->find("mode")->as_string() == "auto");
  CHECK(number_of(outcome.report, "bytes_now") == static_cast<std::int64_t>(guard.bytes_now));
  CHECK(number_of(outcome.report, "bytes_most") == static_cast<std::int64_t>(guard.bytes_most));
  CHECK(number_of(outcome.report, "bytes_least") == static_cast<std::int64_t>(guard.bytes_least));
  CHECK(number_of(outcome.report, "shrinks") == guard.shrinks);
  CHECK(number_of(outcome.report, "grows") == guard.grows);
  std::int64_t faults = 0;
  REQUIRE(outcome.report.find("guard")->find("reasons")->find("faults")->get_integer(faults));
  CHECK(faults == guard.shrinks);
  CHECK(outcome.table.find("memory was short") != std::string::npos);
  std::int64_t most = 0;
  REQUIRE(outcome.report.find("cache")->find("bytes")->get_integer(most));
  CHECK(most == static_cast<std::int64_t>(guard.bytes_most));

  const Outcome off = run({}, nullptr);
  CHECK(*off.report.find("guard")->find("mode")->as_string() == "off");
  CHECK(off.table.find("memory was short") == std::string::npos);
}
