// Experts with digests: wrong bytes are read once more, and refused if they stay wrong.
#include <catch2/catch.hpp>

#include "runtime/base/hash.h"
#include "tests/prefetch/expert_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

std::vector<SliceDigests> right_digests(const ExpertExtents& extents) {
  std::vector<SliceDigests> all;
  const auto digest = [](const MatrixExtent& slice) {
    std::vector<std::byte> bytes(slice.bytes());
    for (std::uint64_t i = 0; i < bytes.size(); ++i)
      bytes[i] = pattern_byte(slice.file, slice.offset_bytes + i);
    return hash64(bytes.data(), bytes.size());
  };
  for (LayerIndex layer = 0; layer < extents.layers(); ++layer)
    for (ExpertIndex expert = 0; expert < extents.experts(layer); ++expert) {
      const ExpertExtent& at = extents.at({layer, expert});
      all.push_back({digest(at.gate), digest(at.up), digest(at.down)});
    }
  return all;
}

LoaderWorld world_with_digests() {
  const ExpertExtents extents = equal_extents(2, 4);
  return LoaderWorld(extents, 4, 2, 512, {}, right_digests(extents));
}

}  // namespace

TEST_CASE("loader: right bytes pass their digests, joined slices too") {
  for (const std::uint64_t bytes : {std::uint64_t{8000}, std::uint64_t{512 * 1024}}) {
    const ExpertExtents extents = equal_extents(1, 4, {bytes, bytes, bytes});
    LoaderWorld world(extents, 4, 2, 512, {}, right_digests(extents));
    for (ExpertIndex expert = 0; expert < 4; ++expert) CHECK_FALSE(world.use({0, expert}));
    CHECK(world.loader->stats().rereads == 0);
  }
}

TEST_CASE("loader: a byte that was wrong once is read again, and nobody notices") {
  LoaderWorld world = world_with_digests();
  const ExpertExtent& extent = world.extents.at({1, 2});
  for (const MatrixExtent* slice : {&extent.gate, &extent.up, &extent.down})
    world.scheduler.set_fault(0, slice->offset_bytes + 17, 0, 1);
  Asker asker({1, 2});
  world.ask({&asker});
  world.scheduler.run();
  CHECK(asker.ready());
  CHECK_FALSE(asker.repeated);
  CHECK(world.bytes_are_right(asker));
  CHECK(world.loader->stats().rereads == 3);
  CHECK(world.loader->stats().failures == 0);
  world.release(asker);
  CHECK(world.use({1, 2}));
}

TEST_CASE("loader: a byte that stays wrong is refused with layer and expert, the others go on") {
  LoaderWorld world = world_with_digests();
  world.scheduler.set_fault(0, world.extents.at({1, 2}).down.offset_bytes + 5, 0, 2);
  Asker damaged({1, 2});
  Asker sound({1, 3});
  world.ask({&damaged, &sound});
  world.scheduler.run();
  CHECK(sound.ready());
  CHECK_FALSE(damaged.ready());
  CHECK(damaged.failure.find("layer 1 expert 2 down") != std::string::npos);
  REQUIRE(damaged.request.failure != nullptr);
  CHECK(damaged.request.failure->code == ErrorCode::verify);
  CHECK(world.loader->stats().rereads == 1);
  CHECK(world.loader->stats().failures == 1);
  world.release(damaged);
  world.release(sound);
  // The next request tries anew, and finds the drive healed.
  CHECK_FALSE(world.use({1, 2}));
}
