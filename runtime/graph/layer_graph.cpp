#include "runtime/graph/layer_graph.h"

#include <tbb/flow_graph.h>

#include <atomic>
#include <tuple>
#include <vector>

#include "model/expert_source.h"
#include "runtime/base/check.h"
#include "runtime/graph/arena_impl.h"

namespace millrace {

namespace {

// News about a job, from the expert source.
struct SliceEvent {
  unsigned job;
  unsigned bits;  // 0: failed
};

constexpr unsigned first_stage_bits = slice_gate | slice_up;
// Beside the Slice bits in a job's state.
constexpr unsigned hidden_done = 1u << 8;
constexpr unsigned job_failed = 1u << 9;

}  // namespace

struct LayerGraph::Impl {
  using TrunkNode = tbb::flow::multifunction_node<LayerIndex, std::tuple<LayerIndex, LayerIndex>>;
  using Gateway = tbb::flow::async_node<LayerIndex, SliceEvent>;
  using ExpertNode = tbb::flow::multifunction_node<SliceEvent, std::tuple<LayerIndex>>;
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
               [this](SliceEvent event, ExpertNode::output_ports_type& out) {
                 run_expert(event, out);
               }),
        combine(graph, tbb::flow::serial,
                [this](LayerIndex index, CombineNode::output_ports_type& out) {
                  if (work->end_layer(index)) std::get<0>(out).try_put(index + 1);
                }) {
    tbb::flow::make_edge(tbb::flow::output_port<0>(trunk), gateway);
    tbb::flow::make_edge(tbb::flow::output_port<1>(trunk), combine);
    tbb::flow::make_edge(gateway, expert);
    tbb::flow::make_edge(tbb::flow::output_port<0>(expert), combine);
    tbb::flow::make_edge(tbb::flow::output_port<0>(combine), trunk);
  }

  void run_trunk(LayerIndex index, TrunkNode::output_ports_type& out) {
    layer = index;
    const unsigned jobs = work->begin_layer(index);
    MILLRACE_CHECK(jobs <= job_state.size());
    if (jobs == 0) {
      std::get<1>(out).try_put(index);
      return;
    }
    for (unsigned job = 0; job < jobs; ++job) job_state[job].store(0, std::memory_order_relaxed);
    jobs_left.store(jobs);
    // The graph stays busy until each job has had its last news.
    for (unsigned job = 0; job < jobs; ++job) gateway.gateway().reserve_wait();
    std::get<0>(out).try_put(index);
  }

  // Runs the stages that this event completes. Whoever brings the last missing piece runs the
  // second stage, or drops a failed job: the state's one atomic decides.
  void run_expert(SliceEvent event, ExpertNode::output_ports_type& out) {
    std::atomic<unsigned>& state = job_state[event.job];
    const unsigned before = state.fetch_or(event.bits == 0 ? job_failed : event.bits);
    const unsigned now = before | event.bits;
    const bool had_first = (before & first_stage_bits) == first_stage_bits;
    if (event.bits == 0) {
      const bool first_stage_running = had_first && (before & hidden_done) == 0;
      if (!first_stage_running) drop_job(event.job, out);
      return;
    }
    bool run_second = (event.bits & slice_down) != 0 && (now & hidden_done) != 0;
    if (!had_first && (now & first_stage_bits) == first_stage_bits) {
      work->gate_up(event.job, arena.worker());
      const unsigned at_end = state.fetch_or(hidden_done);
      if ((at_end & job_failed) != 0) {
        drop_job(event.job, out);
        return;
      }
      run_second = (at_end & slice_down) != 0;
    }
    if (!run_second) return;
    work->down(event.job, arena.worker());
    finish_job(out);
  }

  void drop_job(unsigned job, ExpertNode::output_ports_type& out) {
    work->drop(job);
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

void LayerGraph::deliver(unsigned job, unsigned bits) noexcept {
  impl_->gateway.gateway().try_put(SliceEvent{job, bits});
}

}  // namespace millrace
