#include "runtime/graph/layer_graph.h"

#include <tbb/flow_graph.h>

#include <atomic>
#include <cstdint>
#include <tuple>
#include <vector>

#include "model/expert_source.h"
#include "runtime/base/check.h"
#include "runtime/graph/arena_impl.h"

namespace millrace {

namespace {

// What is to be done for a job next.
enum class Stage : std::uint8_t { first, second, drop };
struct JobStep {
  unsigned job;
  Stage stage;
};

constexpr unsigned first_stage_bits = slice_gate | slice_up;
// Beside the Slice bits in a job's state.
constexpr unsigned hidden_done = 1u << 8;
constexpr unsigned job_failed = 1u << 9;

bool first_stage_ready(unsigned state) noexcept {
  return (state & first_stage_bits) == first_stage_bits;
}

}  // namespace

struct LayerGraph::Impl {
  using TrunkNode = tbb::flow::multifunction_node<LayerIndex, std::tuple<LayerIndex>>;
  using Gateway = tbb::flow::async_node<LayerIndex, JobStep>;
  using ExpertNode = tbb::flow::multifunction_node<JobStep, std::tuple<LayerIndex>>;
  using CombineNode = tbb::flow::multifunction_node<LayerIndex, std::tuple<LayerIndex>>;

  ComputeArena& arena;
  std::vector<std::atomic<unsigned>> job_state;
  std::atomic<unsigned> jobs_left = 0;
  LayerWork* work = nullptr;
  LayerIndex layer = 0;  // written by the trunk node before any job of the layer exists

  tbb::flow::graph graph;
  TrunkNode trunk;
  Gateway gateway;
  ExpertNode expert;
  CombineNode combine;

  Impl(ComputeArena& compute, unsigned jobs_max)
      : arena(compute),
        job_state(jobs_max),
        trunk(
            graph, tbb::flow::serial,
            [this](LayerIndex index, TrunkNode::output_ports_type& out) { run_trunk(index, out); }),
        gateway(graph, tbb::flow::serial,
                [this](LayerIndex index, Gateway::gateway_type&) { work->request_experts(index); }),
        expert(graph, tbb::flow::unlimited,
               [this](JobStep step, ExpertNode::output_ports_type& out) { run_expert(step, out); }),
        combine(graph, tbb::flow::serial,
                [this](LayerIndex index, CombineNode::output_ports_type& out) {
                  if (work->end_layer(index)) std::get<0>(out).try_put(index + 1);
                }) {
    tbb::flow::make_edge(tbb::flow::output_port<0>(trunk), gateway);
    tbb::flow::make_edge(gateway, expert);
    tbb::flow::make_edge(tbb::flow::output_port<0>(expert), combine);
    tbb::flow::make_edge(tbb::flow::output_port<0>(combine), trunk);
  }

  // Layers without jobs end here, in the same thread: one crew takes a token through all of them.
  void run_trunk(LayerIndex index, TrunkNode::output_ports_type& out) {
    arena.gather_crew();
    unsigned jobs = work->begin_layer(index);
    bool more = true;
    while (jobs == 0 && more) {
      more = work->end_layer(index);
      if (more) jobs = work->begin_layer(++index);
    }
    arena.release_crew(jobs == 0);  // jobs want their threads now
    if (jobs > 0) send_jobs(index, jobs, out);
  }

  void send_jobs(LayerIndex index, unsigned jobs, TrunkNode::output_ports_type& out) {
    layer = index;
    MILLRACE_CHECK(jobs <= job_state.size());
    for (unsigned job = 0; job < jobs; ++job) job_state[job].store(0, std::memory_order_relaxed);
    jobs_left.store(jobs);
    // The graph stays busy until each job has had its last news.
    for (unsigned job = 0; job < jobs; ++job) gateway.gateway().reserve_wait();
    std::get<0>(out).try_put(index);
  }

  // Notes what arrived and sends on the step that it makes possible. The state is changed here, in
  // the order of the news, and not in the graph, where messages may overtake each other: a job that
  // was dropped must have no message under way. Of all that may happen at once to a job (slices,
  // failure, the end of its first stage) the state's one atomic decides who was last and acts.
  void deliver(unsigned job, unsigned bits) noexcept {
    const unsigned news = bits == 0 ? job_failed : bits;
    const unsigned before = job_state[job].fetch_or(news);
    const unsigned now = before | news;
    const bool hidden = (before & hidden_done) != 0;
    if (bits == 0) {
      // A first stage that is under way drops the job at its end.
      if (!first_stage_ready(before) || hidden) send({job, Stage::drop});
    } else if (first_stage_ready(now) && !first_stage_ready(before)) {
      send({job, Stage::first});
    } else if ((bits & slice_down) != 0 && hidden) {
      send({job, Stage::second});
    }
  }

  void send(JobStep step) noexcept { gateway.gateway().try_put(step); }

  void run_expert(JobStep step, ExpertNode::output_ports_type& out) {
    Stage stage = step.stage;
    if (stage == Stage::first) {
      work->gate_up(step.job, arena.worker());
      const unsigned at_end = job_state[step.job].fetch_or(hidden_done);
      if ((at_end & job_failed) != 0) stage = Stage::drop;
      else if ((at_end & slice_down) != 0) stage = Stage::second;
      else return;
    }
    if (stage == Stage::drop) work->drop(step.job);
    else work->down(step.job, arena.worker());
    finish_job(out);
  }

  void finish_job(ExpertNode::output_ports_type& out) {
    if (jobs_left.fetch_sub(1) == 1) std::get<0>(out).try_put(layer);
    gateway.gateway().release_wait();
  }
};

LayerGraph::LayerGraph(ComputeArena& arena, unsigned jobs_max) {
  // A graph belongs to the arena in which it is made.
  arena.run([&] { impl_ = std::make_unique<Impl>(arena, jobs_max); });
}

LayerGraph::~LayerGraph() = default;

void LayerGraph::run(LayerWork& work) {
  impl_->work = &work;
  impl_->arena.run([&] {
    impl_->trunk.try_put(LayerIndex{0});
    impl_->graph.wait_for_all();
  });
  impl_->work = nullptr;
}

void LayerGraph::deliver(unsigned job, unsigned bits) noexcept { impl_->deliver(job, bits); }

}  // namespace millrace
