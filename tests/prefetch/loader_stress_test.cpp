// The loader on the real scheduler: threads ask, check every byte and let go at random, by seed.
#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <filesystem>
#include <random>
#include <thread>

#include "io/read_scheduler.h"
#include "runtime/base/hash.h"
#include "tests/prefetch/expert_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

// A model file of pattern bytes, its loader on real reads, and what each slice must hash to.
struct RealWorld {
  RealWorld(ReaderKind reader, DirectMode direct, std::uint64_t slots, std::uint32_t top_k)
      : extents(merged_extents(
            {{8000, 8000, 8800}, {8000, 8000, 8800}, {4000, 4000, 6000}, {8000, 8000, 8800}}, 16)),
        file(open(direct)),
        layout(extents, std::vector<std::uint32_t>{file.block_bytes()}),
        plan(plan_of(layout, slots, top_k)) {
    blocks = allocate_slots(memory, plan).value();
    ReadSchedulerOptions options;
    options.reader.kind = reader;
    options.reader.depth = 8;
    options.reader.files = files;
    options.reader.buffers = memory.segments();
    options.piece_bytes = 4096;
    auto started = ReadScheduler::start(options);
    REQUIRE(started);
    scheduler = std::move(started).value();
    loader.emplace(LoaderParts{.layout = layout,
                               .plan = plan,
                               .blocks = blocks,
                               .files = files,
                               .scheduler = *scheduler,
                               .activity = activity,
                               .top_k = top_k,
                               .policy = make_eviction_policy("lru").value()});
  }
  File open(DirectMode direct) {
    content.resize(end_of_last_slice(extents));
    for (std::uint64_t i = 0; i < content.size(); ++i)
      content[i] = static_cast<char>(pattern_byte(0, i));
    auto opened = File::open(folder.write("model.bin", content), direct);
    REQUIRE(opened);
    return std::move(opened).value();
  }
  bool slice_is_right(const std::byte* data, const MatrixExtent& slice) const {
    return hash64(data, slice.bytes()) ==
           hash64(content.data() + slice.offset_bytes, slice.bytes());
  }

  TempFolder folder;
  ExpertExtents extents;
  std::string content;
  File file;
  std::vector<const File*> files = {&file};
  SlotLayout layout;
  SlotPlan plan;
  PinnedMemory memory;
  std::vector<PinnedBlock> blocks;
  ActivityClock activity{system_clock()};
  std::unique_ptr<ReadScheduler> scheduler;
  std::optional<Loader> loader;
};

// A request that another thread waits for.
struct Waiter {
  ExpertRequest request;
  std::atomic<unsigned> bits = 0;  // 8: failed
  std::atomic<unsigned>* progress = nullptr;
  bool released = false;
  bool gate_checked = false;

  static void on_ready(ExpertRequest& request, unsigned told) {
    Waiter& self = *static_cast<Waiter*>(request.owner);
    std::atomic<unsigned>& progress = *self.progress;
    self.bits.fetch_or(told == 0 ? 8u : told);
    progress.fetch_add(1);
    progress.notify_all();
  }
  void prepare(ExpertKey key, std::atomic<unsigned>& told) {
    request.key = key;
    request.owner = this;
    request.on_ready = &Waiter::on_ready;
    progress = &told;
  }
  bool over() const { return bits.load() == slice_all || (bits.load() & 8u) != 0; }
};

// Looks at what has arrived and gives back what is complete. Returns the wrong slices.
std::uint64_t visit(RealWorld& world, Waiter& waiter) {
  const ExpertExtent& at = world.extents.at(waiter.request.key);
  const unsigned bits = waiter.bits.load();
  std::uint64_t wrong = 0;
  if ((bits & slice_gate) != 0 && !waiter.gate_checked) {
    waiter.gate_checked = true;
    wrong += world.slice_is_right(waiter.request.gate, at.gate) ? 0 : 1;
  }
  if (!waiter.over()) return wrong;
  if ((bits & 8u) != 0 || !world.slice_is_right(waiter.request.up, at.up) ||
      !world.slice_is_right(waiter.request.down, at.down))
    ++wrong;
  waiter.released = true;
  world.loader->release(waiter.request);
  return wrong;
}

// One thread's life: calls of one layer each, slices checked as they come, some given back unread.
std::uint64_t live(RealWorld& world, std::uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  std::atomic<unsigned> progress = 0;
  std::uint64_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto layer = static_cast<LayerIndex>(random() % 4);
    std::deque<Waiter> waiters(1 + random() % 8);
    std::vector<ExpertRequest*> requests;
    for (Waiter& waiter : waiters) {
      waiter.prepare({layer, static_cast<ExpertIndex>(random() % 16)}, progress);
      requests.push_back(&waiter.request);
    }
    world.loader->request(requests);
    std::size_t open = waiters.size();
    while (open > 0) {
      const unsigned before = progress.load();
      const std::size_t open_before = open;
      for (Waiter& waiter : waiters) {
        if (waiter.released) continue;
        if (random() % 32 == 0) {
          waiter.released = true;
          world.loader->release(waiter.request);
        } else {
          wrong += visit(world, waiter);
        }
        open -= waiter.released ? 1 : 0;
      }
      if (open > 0 && open == open_before) progress.wait(before);
    }
  }
  return wrong;
}

void stress(ReaderKind reader, DirectMode direct, std::uint64_t slots, std::uint32_t top_k) {
  RealWorld world(reader, direct, slots, top_k);
  std::atomic<std::uint64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] { wrong += live(world, seed, 150); });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  const LoaderStats stats = world.loader->stats();
  CHECK(stats.failures == 0);
  CHECK(stats.loads > 0);
  CHECK(stats.misses >= stats.joined + stats.loads);  // the rest was given back while waiting
  std::uint64_t by_layer = 0;
  for (const std::uint64_t bytes : stats.bytes_by_layer) by_layer += bytes;
  CHECK(by_layer == stats.demanded_bytes);
  world.loader.reset();  // reads that were given back may be in flight
  CHECK(world.scheduler->stats().bytes <= stats.demanded_bytes);
}

}  // namespace

TEST_CASE("loader stress: threads that share few slots get the right bytes and never hang") {
  stress(ReaderKind::threads, DirectMode::off, 4, 2);
  stress(ReaderKind::threads, DirectMode::automatic, 2, 2);
}

TEST_CASE("loader stress: the same on the reader that this system prefers, with more slots") {
  stress(ReaderKind::automatic, DirectMode::automatic, 20, 4);
  stress(ReaderKind::automatic, DirectMode::automatic, 1, 1);
}

TEST_CASE("loader stress: destruction with reads in flight") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RealWorld world(ReaderKind::automatic, DirectMode::automatic, 12, 2);
    std::atomic<unsigned> progress = 0;
    std::deque<Waiter> waiters(16);
    std::vector<ExpertRequest*> requests;
    for (ExpertIndex e = 0; e < 16; ++e) {
      waiters[e].prepare({static_cast<LayerIndex>(seed % 4), e}, progress);
      requests.push_back(&waiters[e].request);
    }
    world.loader->request(requests);
    if (seed % 2 == 0) progress.wait(0);
    world.loader.reset();
  }
}

TEST_CASE("loader stress: a file that shrinks while in use fails its readers with its name") {
  RealWorld world(ReaderKind::automatic, DirectMode::automatic, 12, 2);
  std::filesystem::resize_file(world.file.path(), 8192);
  std::atomic<unsigned> progress = 0;
  Waiter waiter;
  waiter.prepare({3, 15}, progress);
  ExpertRequest* const requests[] = {&waiter.request};
  world.loader->request(requests);
  for (unsigned seen = 0; !waiter.over(); seen = progress.load()) progress.wait(seen);
  CHECK((waiter.bits.load() & 8u) != 0);
  REQUIRE(waiter.request.failure != nullptr);
  CHECK(waiter.request.failure->what.find("model.bin: layer 3 expert 15") != std::string::npos);
  CHECK(waiter.request.failure->what.find("truncated from") != std::string::npos);
  world.loader->release(waiter.request);
}
