#include "prefetch/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "io/errno_text.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace millrace {
namespace {

const char* slice_names(unsigned parts) {
  switch ((parts | parts >> scale_part_shift | parts >> zero_part_shift) & slice_all) {
    case slice_gate:
      return "gate";
    case slice_up:
      return "up";
    case slice_down:
      return "down";
    default:
      return "gate and up";
  }
}

// What a read ends with whose bytes do not match their digest; no reader reports it.
constexpr int damaged_status = EBADMSG;

std::string read_error_text(const File& file, ExpertKey key, const ExpertRead& read, int status) {
  std::string text =
      fmt::format("{}: layer {} expert {} {}: offset {}: {}", file.path(), key.layer, key.expert,
                  slice_names(read.parts), read.offset_bytes,
                  status == damaged_status
                      ? "the bytes are not those that were packed, also when read again (millrace "
                        "verify lists all that are damaged)"
                      : errno_text(status));
  const Result<std::uint64_t> now = file.current_size();
  if (now && now.value() < file.size_bytes())
    text += fmt::format("; the file was truncated from {} to {} bytes while in use",
                        file.size_bytes(), now.value());
  return text;
}

// Hands ranges to the scheduler some at a time.
class Submission {
 public:
  explicit Submission(ReadScheduler& scheduler) : scheduler_(scheduler) {}
  void add(RangeRead& range) noexcept {
    ranges_[count_++] = &range;
    if (count_ == ranges_.size()) flush();
  }
  void flush() noexcept {
    if (count_ > 0) scheduler_.submit(std::span(ranges_).first(count_));
    count_ = 0;
  }

 private:
  ReadScheduler& scheduler_;
  std::array<RangeRead*, 64> ranges_{};
  std::size_t count_ = 0;
};

// Neighbouring slots of a group whose blocks lie in the same segment of memory.
std::vector<PoolSegment> segments_of(std::span<const PinnedBlock> blocks,
                                     const ExpertCache& cache) {
  std::vector<PoolSegment> segments;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto slot = static_cast<SlotIndex>(i);
    const auto buffer = static_cast<std::uint32_t>(blocks[i].buffer);
    if (segments.empty() || segments.back().buffer != buffer ||
        segments.back().group != cache.group(slot))
      segments.push_back({.group = cache.group(slot), .first = slot, .slots = 0, .buffer = buffer});
    ++segments.back().slots;
  }
  return segments;
}

bool fully_reported(const ExpertRequest& request) noexcept {
  return request.reported_bits == slice_all || request.failure != nullptr;
}

}  // namespace

LoaderStats operator-(LoaderStats later, const LoaderStats& earlier) {
  later.hits -= earlier.hits;
  later.misses -= earlier.misses;
  later.joined -= earlier.joined;
  later.waits -= earlier.waits;
  later.loads -= earlier.loads;
  later.failures -= earlier.failures;
  later.rereads -= earlier.rereads;
  later.evictions -= earlier.evictions;
  later.demanded_bytes -= earlier.demanded_bytes;
  for (std::size_t i = 0; i < later.bytes_by_layer.size() && i < earlier.bytes_by_layer.size(); ++i)
    later.bytes_by_layer[i] -= earlier.bytes_by_layer[i];
  later.guessed_bytes -= earlier.guessed_bytes;
  later.guesses_used_bytes -= earlier.guesses_used_bytes;
  return later;
}

Loader::Loader(LoaderParts parts)
    : layout_(parts.layout),
      files_(parts.files),
      digests_(parts.digests),
      scheduler_(parts.scheduler),
      activity_(parts.activity),
      top_k_(parts.top_k),
      cache_(parts.layout, parts.plan, parts.top_k, std::move(parts.policy), parts.spares),
      segments_(segments_of(parts.blocks, cache_)),
      loads_(parts.blocks.size()),
      queues_(parts.plan.groups.size()),
      waiting_(parts.layout.experts(), 0) {
  MILLRACE_CHECK(parts.blocks.size() == cache_.slots());
  MILLRACE_CHECK(digests_.empty() || digests_.size() == layout_.experts());
  const auto registered = static_cast<std::int32_t>(scheduler_.registered_buffers());
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    Load& made = loads_[i];
    made.loader = this;
    made.block = parts.blocks[i];
    if (made.block.buffer >= registered) made.block.buffer = -1;
    MILLRACE_CHECK(made.block.bytes >=
                   parts.plan.groups[cache_.group(static_cast<SlotIndex>(i))].slot_bytes);
    for (RangeRead& read : made.reads) {
      read.done = &Loader::read_done;
      read.owner = &made;
    }
  }
  for (const SlotGroup& group : parts.plan.groups)
    group_experts_.push_back(static_cast<double>(group.experts));
  for (std::uint32_t group = 0; group < cache_.groups(); ++group)
    spares_ += static_cast<std::uint32_t>(cache_.spares(group).size());
  counted_.bytes_by_layer.assign(layout_.layers(), 0);
}

Loader::~Loader() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  quiet_.wait(lock, [this] { return submissions_ == 0; });  // a range is cancelled only once queued
  for (Load& of : loads_) {
    if (of.reads_open == 0) continue;
    for (std::uint32_t i = 0; i < of.placement->read_count; ++i) {
      if (!scheduler_.cancel(of.reads[i])) continue;
      --reads_open_;
      if (--of.reads_open == 0 && !of.guess) activity_.demand_end();
    }
  }
  quiet_.wait(lock, [this] { return reads_open_ == 0; });
}

void Loader::request(std::span<ExpertRequest* const> requests) noexcept {
  Chain chain;
  ExpertRequest* hits = nullptr;  // linked through `next`, which hits do not need otherwise
  ExpertRequest** hits_end = &hits;
  {
    std::unique_lock lock(mutex_);
    if (!requests.empty()) begin_call(requests);
    // What is here is claimed first, so that a miss of the same call does not evict it.
    for (ExpertRequest* request : requests) {
      MILLRACE_CHECK(request->on_ready != nullptr);
      if (!ask(*request)) continue;
      *hits_end = request;
      hits_end = &request->next;
    }
    for (ExpertRequest* request : requests)
      if (request->slot == no_slot) ask_missing(*request, chain);
    if (spares_ > 0 && !requests.empty()) withdraw_guesses(requests.front()->key.layer);
    submit(chain, lock);
  }
  // From here on the span is not looked at: misses may be done with already.
  while (hits != nullptr) {
    ExpertRequest* const request = hits;
    hits = request->next;
    request->on_ready(*request, slice_all);
  }
}

bool Loader::request_if_here(std::span<ExpertRequest* const> requests) noexcept {
  const std::lock_guard lock(mutex_);
  for (const ExpertRequest* request : requests) {
    const ExpertCache::State state = cache_.state(request->key);
    if (state != ExpertCache::State::ready && state != ExpertCache::State::in_use) return false;
    // Making a guess an expert like any other may evict one of the others.
    if (cache_.is_guess(cache_.find(request->key))) return false;
  }
  if (requests.empty()) return true;
  begin_call(requests);
  for (ExpertRequest* request : requests) MILLRACE_CHECK(ask(*request));
  if (spares_ > 0) withdraw_guesses(requests.front()->key.layer);
  return true;
}

// Under the lock: a new request, that joins the slot of its expert if there is one. Whether it is a
// hit: then it has heard all that there is to hear.
bool Loader::ask(ExpertRequest& request) noexcept {
  for (const std::byte** const part : request.parts()) *part = nullptr;
  request.failure = nullptr;
  request.next = nullptr;
  request.slot = no_slot;
  request.reported_bits = 0;
  const ExpertCache::Asked asked = cache_.ask(request.key, request.tokens);
  request.hit = asked.hit;
  if (asked.slot == no_slot) return false;
  if (load(asked.slot).guess) promote(load(asked.slot));
  attach(request, asked.slot);
  if (asked.hit) request.reported_bits = slice_all;
  return asked.hit;
}

// Under the lock: tells the cache which layer asks, and for how many tokens: each chose top-k.
void Loader::begin_call(std::span<ExpertRequest* const> requests) noexcept {
  std::uint64_t choices = 0;
  for (const ExpertRequest* request : requests) choices += request->tokens;
  cache_.begin(requests.front()->key.layer, call_tokens(choices, top_k_));
}

void Loader::suggest(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept {
  Chain chain;
  std::unique_lock lock(mutex_);
  for (const ExpertIndex expert : experts) {
    const ExpertKey key{layer, expert};
    if (cache_.find(key) != no_slot || waiting_[layout_.index(key)] > 0) continue;
    const SlotIndex slot = cache_.guess(key);
    if (slot == no_slot) break;
    start(slot, key, true, chain);
  }
  submit(chain, lock);
}

void Loader::guess_bytes(std::uint64_t& guessed, std::uint64_t& used) const noexcept {
  const std::lock_guard lock(mutex_);
  guessed = counted_.guessed_bytes;
  used = counted_.guesses_used_bytes;
}

// Under the lock: someone asks for a guess. What is still queued of it is wanted now.
void Loader::promote(Load& of) noexcept {
  of.guess = false;
  counted_.guesses_used_bytes += of.placement->read_bytes();
  if (of.reads_open == 0) return;
  activity_.demand_begin();
  for (std::uint32_t i = 0; i < of.placement->read_count; ++i)
    scheduler_.reprioritize(of.reads[i], of.placement->reads[i].first ? ReadPriority::demand_first
                                                                      : ReadPriority::demand_rest);
}

// Under the lock: guesses of a layer whose turn it is were wrong; those not begun are taken back.
void Loader::withdraw_guesses(LayerIndex layer) noexcept {
  if (submissions_ > 0) return;  // a range is cancelled only once queued
  for (std::uint32_t group = 0; group < cache_.groups(); ++group) {
    for (const SlotIndex slot : cache_.spares(group)) {
      if (slot == no_slot || !load(slot).guess || load(slot).failed) continue;
      if (load(slot).key.layer == layer) withdraw_guess(slot);
    }
  }
}

// Under the lock, with no submission under way.
void Loader::withdraw_guess(SlotIndex slot) noexcept {
  Load& of = load(slot);
  if (of.reads_open == 0) return;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < of.placement->read_count; ++i) {
    if (!scheduler_.cancel(of.reads[i])) continue;
    bytes += of.reads[i].bytes;
    --of.reads_open;
    --reads_open_;
  }
  counted_.guessed_bytes -= bytes;
  if (bytes == 0) return;
  if (of.reads_open == 0) {
    cache_.withdraw(slot);
  } else {
    of.failed = true;  // a part of it: not to be taken for the whole
    cache_.fail(slot);
  }
}

// Under the lock: a load of its own, a share of one that began in the same call, or the queue.
void Loader::ask_missing(ExpertRequest& request, Chain& chain) noexcept {
  if (cache_.state(request.key) == ExpertCache::State::loading) {
    attach(request, cache_.join(request.key, request.tokens));
    return;
  }
  const bool others_wait = queues_[cache_.group(request.key)].first != nullptr;
  const SlotIndex slot = others_wait ? no_slot : cache_.assign(request.key, request.tokens);
  if (slot == no_slot) {
    ++counted_.waits;
    enqueue(request);
    return;
  }
  start(slot, request.key, false, chain);
  attach(request, slot);
}

// Under the lock: prepares the reads of a newly assigned slot and appends it to the chain.
void Loader::start(SlotIndex slot, ExpertKey key, bool guess, Chain& chain) noexcept {
  Load& of = load(slot);
  MILLRACE_CHECK(of.reads_open == 0 && of.joined == nullptr);
  const ExpertPlacement& placement = layout_.at(key);
  of.key = key;
  of.placement = &placement;
  of.landed_parts = placement.absent_parts;
  of.ready_bits = 0;
  of.reread_parts = 0;
  of.failed = false;
  of.guess = guess;
  of.next_started = nullptr;
  of.reads_open = placement.read_count;
  for (std::uint32_t i = 0; i < placement.read_count; ++i) {
    const ExpertRead& from = placement.reads[i];
    RangeRead& read = of.reads[i];
    read.file = from.file;
    read.offset_bytes = from.offset_bytes;
    read.bytes = from.bytes;
    read.needed_bytes = from.needed_bytes;
    read.target = of.block.data + from.slot_offset_bytes;
    read.buffer = of.block.buffer;
    read.elsewhere = false;
    read.priority = guess        ? ReadPriority::speculative
                    : from.first ? ReadPriority::demand_first
                                 : ReadPriority::demand_rest;
  }
  reads_open_ += placement.read_count;
  const std::uint64_t bytes = placement.read_bytes();
  if (guess) {
    counted_.guessed_bytes += bytes;
  } else {
    counted_.demanded_bytes += bytes;
    counted_.bytes_by_layer[key.layer] += bytes;
  }
  (chain.first == nullptr ? chain.first : chain.last->next_started) = &of;
  chain.last = &of;
}

// Under the lock: binds a request to a slot it has claimed; if that is loading, to be reported.
void Loader::attach(ExpertRequest& request, SlotIndex slot) noexcept {
  Load& of = load(slot);
  const std::byte* const data = of.block.data;
  request.slot = slot;
  const ExpertPlacement& placement = *of.placement;
  const auto part = [&](std::size_t index) -> const std::byte* {
    const bool absent = (placement.absent_parts >> index & 1) != 0;
    return absent ? nullptr : data + placement.data_offset[index];
  };
  for (std::size_t i = 0; i < expert_parts; ++i) *request.parts()[i] = part(i);
  request.next = nullptr;
  if (request.hit) return;
  ExpertRequest** end = &of.joined;
  while (*end != nullptr) end = &(*end)->next;
  *end = &request;
}

void Loader::leave_load(ExpertRequest& request) noexcept {
  ExpertRequest** link = &load(request.slot).joined;
  while (*link != &request) {
    MILLRACE_CHECK(*link != nullptr);
    link = &(*link)->next;
  }
  *link = request.next;
}

// Drops the lock meanwhile. All reads of the chain are open and unsubmitted, so its slots stay as
// they are until the last read of each, of its down slice, is handed over.
void Loader::submit(const Chain& chain, std::unique_lock<std::mutex>& lock) noexcept {
  if (chain.first == nullptr) return;
  ++submissions_;
  lock.unlock();
  Submission submission(scheduler_);
  for (Load* of = chain.first; of != nullptr; of = of->next_started) {
    if (!of->guess) activity_.demand_begin();
    for (std::uint32_t i = 0; of->placement->reads[i].first; ++i) submission.add(of->reads[i]);
  }
  for (Load* of = chain.first; of != nullptr;) {
    Load* const next = of->next_started;
    const std::uint32_t count = of->placement->read_count;
    std::uint32_t i = 0;
    while (of->placement->reads[i].first) ++i;
    for (; i < count; ++i) submission.add(of->reads[i]);
    of = next;
  }
  submission.flush();
  lock.lock();
  --submissions_;
  if (closing_) quiet_.notify_all();
}

void Loader::release(ExpertRequest& request) noexcept {
  Chain chain;
  std::unique_lock lock(mutex_);
  while (calling_ == &request && calling_thread_ != std::this_thread::get_id()) {
    ++release_waits_;
    quiet_.wait(lock);
    --release_waits_;
  }
  const std::uint32_t group = cache_.group(request.key);
  if (request.slot == no_slot) {
    leave_queue(request);
    serve(group, chain);
  } else {
    if (!fully_reported(request)) leave_load(request);
    if (cache_.release(request.slot)) serve(group, chain);
    request.slot = no_slot;
  }
  submit(chain, lock);
}

LoaderStats Loader::stats() const {
  const std::lock_guard lock(mutex_);
  LoaderStats all = counted_;
  const CacheCounters& cache = cache_.counters();
  all.hits = cache.hits;
  all.misses = cache.misses;
  all.joined = cache.joined;
  all.loads = cache.loads;
  all.evictions = cache.evictions;
  return all;
}

// ---- requests that wait for a slot (all under the lock)

void Loader::enqueue(ExpertRequest& request) noexcept {
  Queue& queue = queues_[cache_.group(request.key)];
  request.next = nullptr;
  (queue.first == nullptr ? queue.first : queue.last->next) = &request;
  queue.last = &request;
  ++waiting_[layout_.index(request.key)];
}

void Loader::leave_queue(ExpertRequest& request) noexcept {
  Queue& queue = queues_[cache_.group(request.key)];
  ExpertRequest* before = nullptr;
  ExpertRequest* at = queue.first;
  while (at != &request) {
    MILLRACE_CHECK(at != nullptr);  // released twice, or never requested
    before = at;
    at = at->next;
  }
  (before == nullptr ? queue.first : before->next) = request.next;
  if (queue.last == &request) queue.last = before;
  --waiting_[layout_.index(request.key)];
}

// Gives slots to the queue's first requests while there are any.
void Loader::serve(std::uint32_t group, Chain& chain) noexcept {
  Queue& queue = queues_[group];
  while (queue.first != nullptr && !closing_) {
    ExpertRequest& request = *queue.first;
    const SlotIndex slot = cache_.assign(request.key, request.tokens);
    if (slot == no_slot) return;
    leave_queue(request);
    start(slot, request.key, false, chain);
    attach(request, slot);
    if (waiting_[layout_.index(request.key)] > 0) join_waiting(queue, slot, request.key);
  }
}

// Later requests for the expert that just got its slot come along.
void Loader::join_waiting(Queue& queue, SlotIndex slot, ExpertKey key) noexcept {
  for (ExpertRequest* at = queue.first; at != nullptr;) {
    ExpertRequest* const next = at->next;
    if (at->key == key) {
      leave_queue(*at);
      cache_.join(key, at->tokens);
      attach(*at, slot);
    }
    at = next;
  }
}

// ---- completions (the scheduler's thread)

void Loader::read_done(RangeRead& read, int status) {
  Load& of = *static_cast<Load*>(read.owner);
  Loader& loader = *of.loader;
  if (status == 0 && !loader.undamaged(of, read)) {
    if (loader.read_again(of, read)) return;
    status = damaged_status;
  }
  loader.complete(of, read, status);
}

const ExpertRead& Loader::placed(const Load& of, const RangeRead& read) noexcept {
  return of.placement->reads[static_cast<std::size_t>(&read - of.reads.data())];
}

// Whether the slices of a read that ended well are those that were packed.
bool Loader::undamaged(const Load& of, const RangeRead& read) const noexcept {
  if (digests_.empty()) return true;
  const SliceDigests& digests = digests_[layout_.index(of.key)];
  for (std::size_t slice = 0; slice < digests.size(); ++slice) {
    if ((placed(of, read).parts & (1U << slice)) == 0) continue;
    const std::byte* data = of.block.data + of.placement->data_offset[slice];
    if (hash64(data, of.placement->data_bytes[slice]) != digests[slice]) return false;
  }
  return true;
}

// Once per read, from another drive if there is one: a wrong bit may have been picked up on the
// way. False: no more.
bool Loader::read_again(Load& of, RangeRead& read) noexcept {
  std::unique_lock lock(mutex_);
  const unsigned parts = placed(of, read).parts;
  if (closing_ || (of.reread_parts & parts) != 0) return false;
  of.reread_parts |= parts;
  read.elsewhere = true;
  ++counted_.rereads;
  ++submissions_;
  lock.unlock();
  RangeRead* const again = &read;
  scheduler_.submit({&again, 1});
  lock.lock();
  --submissions_;
  if (closing_) quiet_.notify_all();
  return true;
}

void Loader::complete(Load& of, const RangeRead& read, int status) noexcept {
  Chain chain;
  std::unique_lock lock(mutex_);
  const ExpertRead& from = placed(of, read);
  if (status == 0) {
    of.landed_parts |= from.parts;
    of.ready_bits = whole_slices(of.landed_parts);
  } else if (!of.failed && !closing_) {
    fail(of, read, status);
  }
  if (--of.reads_open == 0) {
    if (!of.guess) activity_.demand_end();
    const SlotIndex slot = slot_of(of);
    if (!closing_ && cache_.finish(slot)) serve(cache_.group(slot), chain);
  }
  submit(chain, lock);
  report(of, lock);
  --reads_open_;
  if (closing_ && reads_open_ == 0) quiet_.notify_all();
}

void Loader::fail(Load& of, const RangeRead& read, int status) {
  of.failed = true;
  cache_.fail(slot_of(of));
  if (of.guess) return;  // whoever asks for it tries again and hears what is wrong
  of.error.code = status == damaged_status ? ErrorCode::verify : ErrorCode::io;
  of.error.what = read_error_text(*files_[read.source_file], of.key, placed(of, read), status);
  ++counted_.failures;
}

// The next joined request that has something to hear; it is marked as having heard it.
ExpertRequest* Loader::next_report(Load& of, unsigned& bits) noexcept {
  for (ExpertRequest** link = &of.joined; *link != nullptr; link = &(*link)->next) {
    ExpertRequest& request = **link;
    bits = of.failed ? 0 : of.ready_bits & ~request.reported_bits;
    if (bits == 0 && !of.failed) continue;
    request.reported_bits |= bits;
    if (of.failed) request.failure = &of.error;
    if (fully_reported(request)) *link = request.next;
    return &request;
  }
  return nullptr;
}

// Calls back what became known. The lock is dropped around each call; the slot may have been given
// to another expert by then, which has nothing to report yet. After its call a request is not
// touched: its owner may be done with it.
void Loader::report(Load& of, std::unique_lock<std::mutex>& lock) noexcept {
  MILLRACE_CHECK(calling_ == nullptr);  // one scheduler thread
  unsigned bits = 0;
  while (!closing_) {
    ExpertRequest* const request = next_report(of, bits);
    if (request == nullptr) return;
    calling_ = request;
    calling_thread_ = std::this_thread::get_id();
    lock.unlock();
    request->on_ready(*request, bits);
    lock.lock();
    calling_ = nullptr;
    if (release_waits_ > 0) quiet_.notify_all();
  }
}

}  // namespace millrace
