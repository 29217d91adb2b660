// Small worlds for the tests of the cache and the loader: extents of made-up models, a loader on
// the fake scheduler, and requests that note what they were told.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prefetch/loader.h"
#include "tests/support/fake_scheduler.h"
#include "tests/support/temp_folder.h"

namespace millrace::testing {

inline MatrixExtent slice_at(std::uint64_t offset, std::uint64_t bytes, std::uint32_t file = 0) {
  return {.type = DType::f32,
          .file = file,
          .offset_bytes = offset,
          .row_bytes = bytes,
          .rows = 1,
          .columns = 1};
}

struct SliceBytes {
  std::uint64_t gate = 1000 * 8;
  std::uint64_t up = 1000 * 8;
  std::uint64_t down = 1100 * 8;
};

// Merged tensors as GGUF files have them: all gates of a layer, all ups, all downs, from an
// unaligned start on. `layer_bytes` gives each layer its slice sizes.
inline ExpertExtents merged_extents(const std::vector<SliceBytes>& layer_bytes,
                                    std::uint32_t experts, std::uint64_t start = 4096 + 96) {
  std::vector<std::vector<ExpertExtent>> layers;
  std::uint64_t at = start;
  for (const SliceBytes& bytes : layer_bytes) {
    std::vector<ExpertExtent> row(experts);
    for (ExpertExtent& e : row) e.gate = slice_at(std::exchange(at, at + bytes.gate), bytes.gate);
    for (ExpertExtent& e : row) e.up = slice_at(std::exchange(at, at + bytes.up), bytes.up);
    for (ExpertExtent& e : row) e.down = slice_at(std::exchange(at, at + bytes.down), bytes.down);
    layers.push_back(std::move(row));
  }
  return ExpertExtents(std::move(layers));
}
inline ExpertExtents equal_extents(std::uint32_t layers, std::uint32_t experts,
                                   SliceBytes bytes = {}) {
  return merged_extents(std::vector<SliceBytes>(layers, bytes), experts);
}

inline std::uint64_t end_of_last_slice(const ExpertExtents& extents) {
  std::uint64_t end = 0;
  for (LayerIndex l = 0; l < extents.layers(); ++l)
    for (ExpertIndex e = 0; e < extents.experts(l); ++e)
      for (const MatrixExtent* m :
           {&extents.at({l, e}).gate, &extents.at({l, e}).up, &extents.at({l, e}).down})
        end = std::max(end, m->offset_bytes + m->bytes());
  return end;
}

// A plan with exactly so many slots of the largest class.
inline SlotPlan plan_of(const SlotLayout& layout, std::uint64_t slots, std::uint32_t top_k,
                        std::uint64_t segment_bytes = 0) {
  auto plan = plan_slots(layout, slots * layout.classes().back().slot_bytes, top_k, segment_bytes);
  REQUIRE(plan);
  return std::move(plan).value();
}

// A request that notes its callbacks.
struct Asker {
  explicit Asker(ExpertKey key) {
    request.key = key;
    request.owner = this;
    request.on_ready = [](ExpertRequest& r, unsigned told) {
      Asker& self = *static_cast<Asker*>(r.owner);
      ++self.calls;
      self.repeated = self.repeated || (self.bits & told) != 0;
      self.bits |= told;
      if (told == 0) self.failure = r.failure->what;
    };
  }
  bool ready() const { return bits == slice_all; }

  ExpertRequest request;
  unsigned bits = 0;
  unsigned calls = 0;
  bool repeated = false;  // a bit was told twice
  std::string failure;
};

// A loader over `extents` on the fake scheduler, with a file of the right size behind it.
struct LoaderWorld {
  LoaderWorld(ExpertExtents made, std::uint64_t slots, std::uint32_t top_k,
              std::uint32_t block = 512, FakeSchedulerOptions options = {},
              std::vector<SliceDigests> expected = {}, std::uint64_t segment_bytes = 0)
      : digests(std::move(expected)),
        extents(std::move(made)),
        layout(extents, std::vector<std::uint32_t>{block}),
        plan(plan_of(layout, slots, top_k, segment_bytes)),
        file(open_file()),
        scheduler(std::move(options)) {
    auto allocated = allocate_slots(memory, plan);
    REQUIRE(allocated);
    blocks = std::move(allocated).value();
    auto policy = make_eviction_policy("lru");
    REQUIRE(policy);
    files = {&file};
    loader.emplace(LoaderParts{.layout = layout,
                               .plan = plan,
                               .blocks = blocks,
                               .files = files,
                               .digests = digests,
                               .scheduler = scheduler,
                               .activity = activity,
                               .top_k = top_k,
                               .policy = std::move(policy).value()});
  }
  File open_file() {
    auto opened = File::open(folder.write("model.gguf", "x"), DirectMode::off);
    REQUIRE(opened);
    return std::move(opened).value();
  }

  void ask(std::vector<Asker*> askers) {
    std::vector<ExpertRequest*> requests;
    for (Asker* asker : askers) requests.push_back(&asker->request);
    loader->request(requests);
  }
  void release(Asker& asker) { loader->release(asker.request); }
  // Asks, lets everything arrive, releases. Returns whether it was a hit.
  bool use(ExpertKey key) {
    Asker asker(key);
    ask({&asker});
    scheduler.run();
    REQUIRE(asker.ready());
    const bool hit = asker.request.hit;
    release(asker);
    return hit;
  }
  bool bytes_are_right(const Asker& asker) const {
    const ExpertExtent& at = extents.at(asker.request.key);
    return same(asker.request.gate, at.gate) && same(asker.request.up, at.up) &&
           same(asker.request.down, at.down);
  }
  static bool same(const std::byte* data, const MatrixExtent& slice) {
    for (std::uint64_t i = 0; i < slice.bytes(); ++i)
      if (data[i] != pattern_byte(slice.file, slice.offset_bytes + i)) return false;
    return true;
  }

  TempFolder folder;
  std::vector<SliceDigests> digests;
  ExpertExtents extents;
  SlotLayout layout;
  SlotPlan plan;
  PinnedMemory memory;
  std::vector<PinnedBlock> blocks;
  File file;
  std::vector<const File*> files;
  ActivityClock activity{system_clock()};
  FakeScheduler scheduler;
  std::optional<Loader> loader;
};

}  // namespace millrace::testing
