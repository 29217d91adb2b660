// Loader: brings asked-for experts into slots. Implements ExpertSource over an ExpertCache (which
// slot), a ReadScheduler (the bytes) and blocks of pinned memory (where they land).
//
// One short mutex guards all state; reads are submitted and callbacks run without it. Any thread
// may call request(), release() and stats(); reads complete in the scheduler's one thread. Nothing
// allocates between construction and destruction, but failures (their text) and stats().
//
// Order: gate and up of all missing experts of a call are submitted before any down. A request
// without a free slot waits in order of arrival among those of its slot group; it joins a load that
// an earlier one in the queue started. A caller makes progress possible by releasing each expert
// when it is done with it, without waiting for others.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/file.h"
#include "io/pinned_memory.h"
#include "io/read_scheduler.h"
#include "model/expert_source.h"
#include "prefetch/expert_cache.h"
#include "prefetch/slot_layout.h"
#include "prefetch/slot_plan.h"
#include "runtime/base/activity.h"

namespace millrace {

// Counters since the start. Subtract an earlier snapshot to get those of a phase.
struct LoaderStats {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t joined = 0;    // of the misses: shared another request's load
  std::uint64_t waits = 0;     // of the misses: found no slot at first
  std::uint64_t loads = 0;     // experts read
  std::uint64_t failures = 0;  // loads that failed
  std::uint64_t rereads = 0;   // reads whose bytes did not match their digest, repeated
  std::uint64_t evictions = 0;
  std::uint64_t demanded_bytes = 0;  // of the loads, rounded to blocks; joined requests add nothing
  std::vector<std::uint64_t> bytes_by_layer;  // demanded_bytes by layer
  std::uint64_t guessed_bytes = 0;            // read or being read without having been asked for
  std::uint64_t guesses_used_bytes = 0;       // of them: asked for later
};
LoaderStats operator-(LoaderStats later, const LoaderStats& earlier);

// XXH3-64 of an expert's slices: gate, up, down.
using SliceDigests = std::array<std::uint64_t, 3>;

// All referenced objects outlive the loader.
struct LoaderParts {
  const SlotLayout& layout;
  const SlotPlan& plan;                 // only read by the constructor
  std::span<const PinnedBlock> blocks;  // as allocate_slots() gave them; memory outlives the loader
  std::span<const File* const> files;   // as the reader's; for messages
  // By SlotLayout::index, or empty: what was read is compared with them, read once more if it
  // differs, and then refused (`verify`).
  std::span<const SliceDigests> digests = {};
  ReadScheduler& scheduler;
  ActivityClock& activity;
  std::uint32_t top_k = 0;
  std::unique_ptr<EvictionPolicy> policy;
  std::uint32_t spares = 0;  // slots of each group for guesses (ExpertCache)
};

// Slots that share a segment of memory: what the pool shrinks and grows by.
struct PoolSegment {
  std::uint32_t group = 0;
  SlotIndex first = 0;
  std::uint32_t slots = 0;
  std::uint32_t buffer = 0;  // the segment of PinnedMemory
};

class Loader final : public ExpertSource {
 public:
  explicit Loader(LoaderParts parts);
  // Takes queued reads back and waits for those in flight. Open requests are not called any more
  // and need no release.
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  void request(std::span<ExpertRequest* const> requests) noexcept override;
  bool request_if_here(std::span<ExpertRequest* const> requests) noexcept override;
  // Also for a request that is still waiting or loading (cancelled): the read goes on and the
  // expert gets cached. When this returns, no callback of the request runs or will run, unless it
  // was called from inside that callback. Not before request() returned or the request was
  // reported.
  void release(ExpertRequest& request) noexcept override;

  // Reads experts that may be asked for soon into spare slots, behind everything that is asked for.
  // Those that are there, wanted or being read are passed over; so are all behind the first that
  // finds no spare. A guess of `layer` that is not used by the next call of it, and has not begun
  // to be read by then, is taken back.
  void suggest(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept;
  // Slots for guesses, of all groups.
  std::uint32_t spares() const noexcept { return spares_; }
  // LoaderStats::guessed_bytes and guesses_used_bytes alone: allocates nothing.
  void guess_bytes(std::uint64_t& guessed, std::uint64_t& used) const noexcept;
  std::uint64_t largest_expert_bytes() const noexcept {
    return layout_.classes().empty() ? 0 : layout_.classes().back().slot_bytes;
  }

  // Shrinking and growing, by one thread at a time; requests go on meanwhile.
  std::span<const PoolSegment> segments() const noexcept { return segments_; }
  std::uint64_t slot_bytes(const PoolSegment& segment) const noexcept {
    return loads_[static_cast<std::size_t>(segment.first)].block.bytes;
  }
  // Experts that may live in a group's slots.
  double experts(std::uint32_t group) const noexcept { return group_experts_[group]; }
  // Gives up the slots of a segment; the experts in them are absent as soon as nobody holds them.
  // False, and nothing happened: its group would have too few (ExpertCache::slots_least).
  bool retire(const PoolSegment& segment);
  // Of a retired segment: whether nothing is held in it or read into it any more, so that its
  // memory may go. Takes back what is queued of guesses.
  bool vacated(const PoolSegment& segment) noexcept;
  // The memory of a retired and vacated segment is there again, at the same place: its slots are
  // empty.
  void restore(const PoolSegment& segment);

  LoaderStats stats() const;
  // Fixed facts (slots, policy) at any time; states and counters only while nothing is asked for.
  const ExpertCache& cache() const noexcept { return cache_; }

 private:
  // The load that a slot saw last.
  struct Load {
    std::array<RangeRead, expert_parts> reads;
    Loader* loader = nullptr;
    const ExpertPlacement* placement = nullptr;
    ExpertKey key;
    PinnedBlock block;
    ExpertRequest* joined = nullptr;  // not fully reported requests, in order of arrival
    Load* next_started = nullptr;     // in a chain that goes to submit()
    std::uint32_t reads_open = 0;
    unsigned landed_parts = 0;  // Part bits
    unsigned reread_parts = 0;  // of reads that were done again
    unsigned ready_bits = 0;    // Slice bits
    bool failed = false;
    bool guess = false;  // nobody has asked for it
    Error error{ErrorCode::io, {}};
  };
  struct Queue {  // requests that wait for a slot of one group
    ExpertRequest* first = nullptr;
    ExpertRequest* last = nullptr;
  };
  struct Chain {  // loads that were given slots and are to be submitted
    Load* first = nullptr;
    Load* last = nullptr;
  };

  Load& load(SlotIndex slot) noexcept { return loads_[static_cast<std::size_t>(slot)]; }
  SlotIndex slot_of(const Load& of) const noexcept {
    return static_cast<SlotIndex>(&of - loads_.data());
  }
  void promote(Load& of) noexcept;
  void withdraw_guesses(LayerIndex layer) noexcept;
  void withdraw_guess(SlotIndex slot) noexcept;
  void begin_call(std::span<ExpertRequest* const> requests) noexcept;
  bool ask(ExpertRequest& request) noexcept;
  void start(SlotIndex slot, ExpertKey key, bool guess, Chain& chain) noexcept;
  void attach(ExpertRequest& request, SlotIndex slot) noexcept;
  void leave_load(ExpertRequest& request) noexcept;
  void ask_missing(ExpertRequest& request, Chain& chain) noexcept;
  void serve(std::uint32_t group, Chain& chain) noexcept;
  void join_waiting(Queue& queue, SlotIndex slot, ExpertKey key) noexcept;
  void enqueue(ExpertRequest& request) noexcept;
  void leave_queue(ExpertRequest& request) noexcept;
  void submit(const Chain& chain, std::unique_lock<std::mutex>& lock) noexcept;

  static void read_done(RangeRead& read, int status);
  static const ExpertRead& placed(const Load& of, const RangeRead& read) noexcept;
  bool undamaged(const Load& of, const RangeRead& read) const noexcept;
  bool read_again(Load& of, RangeRead& read) noexcept;
  void complete(Load& of, const RangeRead& read, int status) noexcept;
  void fail(Load& of, const RangeRead& read, int status);
  ExpertRequest* next_report(Load& of, unsigned& bits) noexcept;
  void report(Load& of, std::unique_lock<std::mutex>& lock) noexcept;

  const SlotLayout& layout_;
  std::span<const File* const> files_;
  std::span<const SliceDigests> digests_;
  ReadScheduler& scheduler_;
  ActivityClock& activity_;
  std::uint32_t top_k_;
  std::uint32_t spares_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable quiet_;  // a callback returned that someone waits for, or the last read
  ExpertCache cache_;
  std::vector<PoolSegment> segments_;
  std::vector<double> group_experts_;
  std::vector<Load> loads_;             // by slot
  std::vector<Queue> queues_;           // by group
  std::vector<std::uint32_t> waiting_;  // requests in queues, by SlotLayout::index
  std::uint64_t reads_open_ = 0;
  std::uint32_t submissions_ = 0;  // threads that hand over reads right now
  bool closing_ = false;
  const ExpertRequest* calling_ = nullptr;  // whose callback runs in the scheduler's thread
  std::thread::id calling_thread_;
  std::uint32_t release_waits_ = 0;
  LoaderStats counted_;  // hits, misses, joined, loads and evictions are the cache's
};

}  // namespace millrace
