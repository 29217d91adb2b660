// LayerGraph: the oneTBB flow graph that takes a batch of tokens through the layers.
//
//        +--------------------------------------------------------------+
//        v                                                              |
//   [trunk] --layer--> (io gateway: async_node) --slices--> [expert] --> [combine]
//        |                   ^    asks for all experts;       gate/up, then down,
//        |                   |    hits come back at once,     many at a time
//        |               I/O thread: deliver()
//   A layer without jobs never leaves [trunk], which goes on to the next one.
//
// The graph knows no arithmetic: a LayerWork does it. It is built once; running it allocates
// nothing of ours.
#pragma once

#include <memory>

#include "runtime/base/ids.h"
#include "runtime/graph/arena.h"

namespace millrace {

// What the nodes call. begin_layer, request_experts and end_layer run one at a time and in this
// order for each layer.
class LayerWork {
 public:
  virtual ~LayerWork() = default;
  // Trunk of the layer, router, grouping. Returns the number of expert jobs (0: nothing to stream,
  // or failed).
  virtual unsigned begin_layer(LayerIndex layer) noexcept = 0;
  // Asks for the experts of all jobs; each answer goes to LayerGraph::deliver, from any thread.
  virtual void request_experts(LayerIndex layer) noexcept = 0;
  // First stage of a job (its gate and up slices are there), second stage (down slice there, first
  // stage done). Different jobs run at once; `worker` is the arena's number of the running thread.
  virtual void gate_up(unsigned job, unsigned worker) noexcept = 0;
  virtual void down(unsigned job, unsigned worker) noexcept = 0;
  // The job's expert could not be read: give the request back. No further stage of the job runs.
  virtual void drop(unsigned job) noexcept = 0;
  // All jobs are done (or dropped). False: the walk ends here.
  virtual bool end_layer(LayerIndex layer) noexcept = 0;
};

class LayerGraph {
 public:
  // `jobs_max`: expert jobs of one layer. The arena must outlive the graph.
  LayerGraph(ComputeArena& arena, unsigned jobs_max);
  ~LayerGraph();
  LayerGraph(const LayerGraph&) = delete;
  LayerGraph& operator=(const LayerGraph&) = delete;

  // Walks from layer 0 until end_layer says false. One walk at a time.
  void run(LayerWork& work);

  // Slices of a job's expert are ready (Slice bits, each once); 0: the request failed, the job is
  // dropped, and no more news of it may come. Any thread; a failure is told after the news before
  // it.
  void deliver(unsigned job, unsigned bits) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
