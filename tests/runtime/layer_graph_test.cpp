// The flow graph with a double in place of the arithmetic: what is called, in which order, and how
// often, whatever order slices and failures come in.
#include "runtime/graph/layer_graph.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/expert_source.h"
#include "tests/kernels/values.h"

using namespace millrace;
using millrace::testing::Random;

namespace {

constexpr unsigned failure = 0;

struct JobPlan {
  std::vector<unsigned> news;  // what deliver() gets, in this order
  bool from_inside = false;    // all of it from inside request_experts(), as hits come
};
using LayerPlan = std::vector<JobPlan>;

JobPlan hit() { return {{slice_all}, true}; }
JobPlan miss(std::vector<unsigned> news) { return {std::move(news), false}; }

// A thread that delivers, one piece of news after the other.
class Drive {
 public:
  explicit Drive(LayerGraph& graph) : graph_(graph), thread_([this] { run(); }) {}
  ~Drive() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void push(const std::vector<std::pair<unsigned, unsigned>>& news) {
    {
      const std::lock_guard lock(mutex_);
      queue_.insert(queue_.end(), news.begin(), news.end());
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto [job, bits] = queue_.front();
      queue_.pop_front();
      lock.unlock();
      graph_.deliver(job, bits);
      lock.lock();
    }
  }
  LayerGraph& graph_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<unsigned, unsigned>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

class FakeWork final : public LayerWork {
 public:
  FakeWork(LayerGraph& graph, Drive& drive, std::vector<LayerPlan> plan, std::uint64_t seed)
      : graph_(graph), drive_(drive), plan_(std::move(plan)), random_(seed) {}

  bool end_after_failure = false;

  unsigned begin_layer(LayerIndex layer) noexcept override {
    enter("begin", layer);
    layer_ = layer;
    for (Job& job : jobs_) job.reset();
    return static_cast<unsigned>(plan_[layer].size());
  }

  void request_experts(LayerIndex layer) noexcept override {
    enter("request", layer);
    const LayerPlan& jobs = plan_[layer];
    for (unsigned job = 0; job < jobs.size(); ++job)
      if (jobs[job].from_inside)
        for (const unsigned bits : jobs[job].news) graph_.deliver(job, bits);
    drive_.push(shuffled(jobs));
  }

  void gate_up(unsigned job, unsigned worker) noexcept override {
    note(worker < 8, "worker");
    Job& state = jobs_[job];
    note(state.downs == 0 && state.drops == 0, "gate_up after down or drop");
    note(state.gate_ups.fetch_add(1) == 0, "gate_up twice");
    note(state.drops == 0, "drop during gate_up");
    state.hidden = true;
  }

  void down(unsigned job, unsigned worker) noexcept override {
    note(worker < 8, "worker");
    Job& state = jobs_[job];
    note(state.hidden, "down before gate_up ended");
    note(state.drops == 0, "down after drop");
    note(state.downs.fetch_add(1) == 0, "down twice");
  }

  void drop(unsigned job) noexcept override {
    Job& state = jobs_[job];
    note(state.downs == 0, "drop after down");
    note(state.gate_ups == 0 || state.hidden, "drop during gate_up");
    note(state.drops.fetch_add(1) == 0, "drop twice");
  }

  bool end_layer(LayerIndex layer) noexcept override {
    enter("end", layer);
    bool failed = false;
    for (unsigned job = 0; job < plan_[layer].size(); ++job) {
      const bool fails = plan_[layer][job].news.back() == failure;
      note(jobs_[job].drops == (fails ? 1u : 0u), "number of drops");
      note(jobs_[job].downs == (fails ? 0u : 1u), "number of downs");
      failed |= fails;
    }
    ++layers_done;
    if (failed && end_after_failure) return false;
    return layer + 1 < plan_.size();
  }

  std::vector<std::string> calls() const { return calls_; }
  std::vector<std::string> wrong() {
    const std::lock_guard lock(mutex_);
    return wrong_;
  }
  std::size_t layers_done = 0;

 private:
  struct Job {
    std::atomic<unsigned> gate_ups = 0, downs = 0, drops = 0;
    std::atomic<bool> hidden = false;
    void reset() {
      gate_ups = downs = drops = 0;
      hidden = false;
    }
  };

  // One at a time, checked.
  void enter(const char* what, LayerIndex layer) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::string(what) + " " + std::to_string(layer));
    if (layer != layer_ && std::string(what) != "begin") wrong_.push_back(calls_.back());
  }
  void note(bool fine, const char* what) {
    if (fine) return;
    const std::lock_guard lock(mutex_);
    wrong_.push_back(what);
  }
  // The news of all jobs in a seeded order that keeps each job's own.
  std::vector<std::pair<unsigned, unsigned>> shuffled(const LayerPlan& jobs) {
    std::vector<unsigned> turns;
    for (unsigned job = 0; job < jobs.size(); ++job)
      if (!jobs[job].from_inside) turns.insert(turns.end(), jobs[job].news.size(), job);
    for (std::size_t i = turns.size(); i > 1; --i)
      std::swap(turns[i - 1], turns[random_.bits() % i]);
    std::vector<std::size_t> next(jobs.size(), 0);
    std::vector<std::pair<unsigned, unsigned>> news;
    for (const unsigned job : turns) news.emplace_back(job, jobs[job].news[next[job]++]);
    return news;
  }

  LayerGraph& graph_;
  Drive& drive_;
  std::vector<LayerPlan> plan_;
  Random random_;
  LayerIndex layer_ = 0;
  std::array<Job, 16> jobs_;
  std::mutex mutex_;
  std::vector<std::string> calls_, wrong_;
};

struct World {
  explicit World(unsigned threads)
      : arena(make_arena(threads)),
        graph(std::make_unique<LayerGraph>(*arena, 16)),
        drive(*graph) {}
  static std::unique_ptr<ComputeArena> make_arena(unsigned threads) {
    auto made = ComputeArena::create(threads);
    if (!made) FAIL(made.error().what);
    return *std::move(made);
  }
  std::unique_ptr<ComputeArena> arena;
  std::unique_ptr<LayerGraph> graph;
  Drive drive;
};

void check_walk(World& world, const std::vector<LayerPlan>& plan, std::uint64_t seed) {
  FakeWork work(*world.graph, world.drive, plan, seed);
  world.graph->run(work);
  INFO("seed " << seed);
  REQUIRE(work.wrong() == std::vector<std::string>());
  REQUIRE(work.layers_done == plan.size());
}

// Every order in which the slices of one expert may come, singly or together, whole or ending in a
// failure.
std::vector<std::vector<unsigned>> all_news() {
  std::vector<std::vector<unsigned>> all;
  std::array<unsigned, 3> slices = {slice_gate, slice_up, slice_down};
  do {
    const auto [a, b, c] = slices;
    all.push_back({a, b, c});
    all.push_back({a, b | c});
    all.push_back({a | b, c});
    all.push_back({a, b, failure});
    all.push_back({a | b, failure});
    all.push_back({a, failure});
  } while (std::next_permutation(slices.begin(), slices.end()));
  all.push_back({slice_all});
  all.push_back({failure});
  return all;
}

}  // namespace

TEST_CASE("layer graph: trunk, request and combine of each layer come in order, one at a time") {
  for (unsigned threads = 1; threads <= 3; ++threads) {
    World world(threads);
    const std::vector<LayerPlan> plan = {
        {hit(), hit()}, {}, {hit(), miss({slice_gate, slice_up, slice_down})}, {}, {}};
    FakeWork work(*world.graph, world.drive, plan, 1);
    world.graph->run(work);
    CHECK(work.wrong() == std::vector<std::string>());
    CHECK(work.calls() == std::vector<std::string>{"begin 0", "request 0", "end 0", "begin 1",
                                                   "end 1", "begin 2", "request 2", "end 2",
                                                   "begin 3", "end 3", "begin 4", "end 4"});
  }
}

TEST_CASE("layer graph: slices in every order and grouping, with and without a failure") {
  for (unsigned threads = 1; threads <= 5; ++threads) {
    World world(threads);
    std::vector<LayerPlan> plan;
    for (const auto& news : all_news()) plan.push_back({miss(news), hit(), miss(news)});
    for (std::uint64_t seed = 0; seed < 5; ++seed) check_walk(world, plan, seed);
  }
}

TEST_CASE("layer graph: a failure while the first stage runs drops the job at its end") {
  for (unsigned threads = 1; threads <= 3; ++threads) {
    World world(threads);
    class During final : public LayerWork {
     public:
      explicit During(LayerGraph& graph) : graph_(graph) {}
      unsigned begin_layer(LayerIndex) noexcept override { return 1; }
      void request_experts(LayerIndex) noexcept override {
        graph_.deliver(0, slice_gate | slice_up);
      }
      void gate_up(unsigned, unsigned) noexcept override {
        calls += "g(";
        graph_.deliver(0, failure);
        calls += ")";
      }
      void down(unsigned, unsigned) noexcept override { calls += "d"; }
      void drop(unsigned) noexcept override { calls += "x"; }
      bool end_layer(LayerIndex layer) noexcept override {
        calls += "e";
        return layer < 2;
      }
      std::string calls;

     private:
      LayerGraph& graph_;
    } work(*world.graph);
    world.graph->run(work);
    CHECK(work.calls == "g()xeg()xeg()xe");
  }
}

TEST_CASE("layer graph: a failure after the first stage drops the job without a second stage") {
  World world(1);
  // One thread: job 1 gets its first stage only after that of job 0 has ended, and fails job 0.
  class Late final : public LayerWork {
   public:
    explicit Late(LayerGraph& graph) : graph_(graph) {}
    unsigned begin_layer(LayerIndex) noexcept override { return 2; }
    void request_experts(LayerIndex) noexcept override { graph_.deliver(0, slice_gate | slice_up); }
    void gate_up(unsigned job, unsigned) noexcept override {
      calls += "g" + std::to_string(job);
      if (job == 0) graph_.deliver(1, slice_all);
      else graph_.deliver(0, failure);
    }
    void down(unsigned job, unsigned) noexcept override { calls += "d" + std::to_string(job); }
    void drop(unsigned job) noexcept override { calls += "x" + std::to_string(job); }
    bool end_layer(LayerIndex) noexcept override {
      calls += "e";
      return false;
    }
    std::string calls;

   private:
    LayerGraph& graph_;
  } work(*world.graph);
  world.graph->run(work);
  CHECK(work.calls == "g0g1d1x0e");
}

TEST_CASE("layer graph: a walk that ends early may be followed by another") {
  World world(2);
  const std::vector<LayerPlan> failing = {{hit()}, {miss({slice_gate, failure}), hit()}, {hit()}};
  for (int round = 0; round < 20; ++round) {
    FakeWork work(*world.graph, world.drive, failing, 1);
    work.end_after_failure = true;
    world.graph->run(work);
    REQUIRE(work.wrong() == std::vector<std::string>());
    REQUIRE(work.layers_done == 2);
    check_walk(world, {{hit()}, {}, {miss({slice_down, slice_up, slice_gate})}}, 1);
  }
}

TEST_CASE("layer graph: five hundred layers") {
  World world(2);
  std::vector<LayerPlan> plan;
  for (unsigned layer = 0; layer < 500; ++layer) {
    plan.emplace_back();
    for (unsigned job = 0; job < layer % 4; ++job)
      plan.back().push_back(job % 2 == 0 ? hit() : miss({slice_up, slice_gate | slice_down}));
  }
  check_walk(world, plan, 3);
}

TEST_CASE("layer graph: random plans in random orders on one to five threads") {
  const auto news = all_news();
  for (unsigned threads = 1; threads <= 5; ++threads) {
    World world(threads);
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      Random random(seed * 8 + threads);
      std::vector<LayerPlan> plan(1 + random.bits() % 6);
      for (LayerPlan& layer : plan) {
        layer.resize(random.bits() % 17);
        for (JobPlan& job : layer)
          job = random.bits() % 3 == 0 ? hit() : miss(news[random.bits() % news.size()]);
      }
      check_walk(world, plan, seed);
    }
  }
}

TEST_CASE("arena: more threads than the system starts are refused with the number that works") {
  // In a child, whose limit on address space leaves room for a few worker stacks only.
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{std::uint64_t{512} << 20, std::uint64_t{512} << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(10);
    const auto arena = ComputeArena::create(256);
    if (arena) _exit(11);
    if (arena.error().code != ErrorCode::memory) _exit(12);
    _exit(arena.error().what.find("use -t ") == std::string::npos ? 13 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
