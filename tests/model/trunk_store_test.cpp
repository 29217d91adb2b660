// The trunk in memory: every layer's bytes are those of the file, pinned or streamed, also after
// walks that end early and reads that fail.
#include "model/trunk_store.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "model/format/open.h"
#include "tests/support/fake_reader.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

struct HandClock final : Clock {
  std::uint64_t ns = 0;
  std::uint64_t now_ns() noexcept override { return ns; }
};

constexpr std::uint64_t plenty = std::uint64_t{1} << 40;

// A dense model of five layers of unequal size on a fake drive. The file is there too, for what is
// read outside the scheduler.
class World {
 public:
  explicit World(std::uint64_t seed, std::uint32_t block = 1) : drive(seed), blocks{block} {
    TinyShape shape = dense_shape();
    shape.layers = 5;
    shape.dense_width = {96, 32, 160, 96, 64};
    bytes = TinyModel(shape).build();
    const std::string path = folder.write("m.gguf", bytes);
    auto checkpoint = open_checkpoint(path);
    REQUIRE(checkpoint.has_value());
    auto read = read_model_spec(*checkpoint);
    REQUIRE(read.has_value());
    spec = *std::move(read);
    auto file = File::open(path, DirectMode::off);
    REQUIRE(file.has_value());
    files.push_back(*std::move(file));
    drive.block_bytes = block;
    drive.short_reads = true;
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    drive.add_file({first, first + bytes.size()});
  }

  TrunkPlan plan(std::uint64_t budget) const {
    auto made = plan_trunk(spec, blocks, budget);
    if (!made) FAIL(made.error().what);
    return *made;
  }

  // Makes the store and loads it.
  Status open(std::uint64_t budget) {
    auto made = TrunkStore::create(spec, plan(budget), blocks, memory);
    REQUIRE(made.has_value());
    store = *std::move(made);
    ReadSchedulerOptions options;
    options.reader.depth = 4;
    options.reader.buffers = memory.segments();
    options.piece_bytes = 8192;
    auto started = ReadScheduler::start_with(options, &FakeDrive::make_reader, &drive);
    REQUIRE(started.has_value());
    scheduler = *std::move(started);
    return store->load(*scheduler, files, *supported_kernels().back(), activity,
                       [](std::uint64_t, std::uint64_t) { return true; });
  }

  void check_matrix(const MatrixExtent& extent, const Matrix& matrix) const {
    REQUIRE(matrix.present());
    REQUIRE(matrix.rows == extent.rows);
    REQUIRE(std::memcmp(matrix.data, bytes.data() + extent.offset_bytes, extent.bytes()) == 0);
  }

  // One layer of a walk, as the pipeline does it.
  Status visit(LayerIndex layer) {
    const auto weights = store->acquire(layer);
    if (!weights) return weights.error();
    for (std::size_t role = 0; role < matrix_role_count; ++role) {
      const auto& extent = spec.layers[layer].matrices[role];
      REQUIRE(extent.has_value() == (*weights)->matrices[role].present());
      if (extent) check_matrix(*extent, (*weights)->matrices[role]);
    }
    store->release(layer);
    return {};
  }
  void walk(LayerIndex layers = 5) {
    for (LayerIndex layer = 0; layer < layers; ++layer) {
      const Status visited = visit(layer);
      if (!visited) FAIL(visited.error().what);
    }
  }
  std::uint64_t offset_of(LayerIndex layer) const {
    return spec.layers[layer].matrix(MatrixRole::ffn_up)->offset_bytes;
  }

  TempFolder folder;
  FakeDrive drive;
  std::vector<std::uint32_t> blocks;
  std::string bytes;
  ModelSpec spec;
  std::vector<File> files;
  HandClock clock;
  ActivityClock activity{clock};
  // In the order in which an engine owns them.
  PinnedMemory memory;
  std::unique_ptr<ReadScheduler> scheduler;
  std::unique_ptr<TrunkStore> store;
};

// The number behind "--trunk ".
std::uint64_t advised_trunk(const std::string& text) {
  const std::size_t at = text.find("--trunk ");
  REQUIRE(at != std::string::npos);
  return std::stoull(text.substr(at + 8));
}

}  // namespace

TEST_CASE("trunk: all pinned, partly pinned or all streamed, the layers are those of the file") {
  for (const std::uint32_t block : {1u, 4096u}) {
    for (const int layout : {0, 1, 2}) {
      World world(7, block);
      const TrunkPlan whole = world.plan(plenty);
      const std::uint64_t smallest = whole.smallest_bytes;
      const std::uint64_t budget = layout == 0   ? plenty
                                   : layout == 1 ? (smallest + whole.total_bytes()) / 2
                                                 : smallest;
      const TrunkPlan plan = world.plan(budget);
      CHECK(plan.pinned_layers == (layout == 0 ? 5u : plan.pinned_layers));
      if (layout == 1) CHECK((plan.pinned_layers > 0 && plan.pinned_layers < 5));
      if (layout == 2) CHECK(plan.pinned_layers == 0);
      REQUIRE(world.open(budget).has_value());
      world.check_matrix(world.spec.embedding, world.store->embedding());
      world.check_matrix(world.spec.head, world.store->head());
      for (int round = 0; round < 3; ++round) world.walk();
    }
  }
}

TEST_CASE("trunk: a walk that ends anywhere may be followed by one from the start") {
  World world(3);
  REQUIRE(world.open(world.plan(plenty).smallest_bytes).has_value());
  for (const LayerIndex layers : {1u, 4u, 2u, 5u, 3u, 3u, 5u, 1u, 5u}) world.walk(layers);
}

TEST_CASE("trunk: a layer that was read ahead is not thrown out for a later one") {
  World world(5);
  REQUIRE(world.open(world.plan(plenty).smallest_bytes).has_value());
  world.walk();
  const std::size_t before = world.scheduler->stats().bytes_by_priority[0];
  std::uint64_t once = 0;
  for (LayerIndex layer = 0; layer < 5; ++layer)
    for (const auto& matrix : world.spec.layers[layer].matrices)
      if (matrix) once += matrix->bytes();
  for (int round = 0; round < 20; ++round) world.walk();
  // What is read ahead at the end of the last walk belongs to the next.
  const std::uint64_t read = world.scheduler->stats().bytes_by_priority[0] - before;
  CHECK(read >= 20 * once - 2 * once);
  CHECK(read <= 20 * once + once);
}

TEST_CASE("trunk: a read that fails when its layer is needed is an error, the next walk works") {
  World world(11);
  const std::uint64_t smallest = world.plan(plenty).smallest_bytes;
  REQUIRE(world.open(smallest).has_value());
  world.walk();
  constexpr unsigned tries = 4;  // of the scheduler, per read
  world.drive.fail(0, world.offset_of(3), EIO, 2 * tries);
  for (LayerIndex layer = 0; layer < 3; ++layer) REQUIRE(world.visit(layer).has_value());
  const Status failed = world.visit(3);
  REQUIRE_FALSE(failed.has_value());
  CHECK(failed.error().code == ErrorCode::io);
  CHECK_THAT(failed.error().what, Catch::Contains("m.gguf: trunk of layer 3"));
  CHECK_THAT(failed.error().what, Catch::Contains("offset"));
  for (int round = 0; round < 3; ++round) world.walk();
  // No demanded read is left over in the books.
  const std::uint64_t stalled = world.activity.times().stalled_ns;
  world.clock.ns += 5;
  CHECK(world.activity.times().stalled_ns == stalled);
}

TEST_CASE("trunk: a read ahead that failed is tried again when its layer is needed") {
  World world(12);
  REQUIRE(world.open(world.plan(plenty).smallest_bytes).has_value());
  world.walk();
  for (const LayerIndex layer : {4u, 2u}) {
    world.drive.fail(0, world.offset_of(layer), EIO, 4);
    world.walk();
  }
}

TEST_CASE("trunk: a file that became shorter is an error that says so, while loading and later") {
  World world(13);
  REQUIRE(world.open(world.plan(plenty).smallest_bytes).has_value());
  world.walk();
  world.drive.truncate(0, world.offset_of(2));
  REQUIRE(world.visit(0).has_value());
  Status status;
  for (LayerIndex layer = 1; layer < 5 && status; ++layer) status = world.visit(layer);
  REQUIRE_FALSE(status.has_value());
  CHECK_THAT(status.error().what, Catch::Contains("truncated"));

  World short_one(14);
  short_one.drive.truncate(0, short_one.spec.embedding.offset_bytes + 10);
  const Status loaded = short_one.open(plenty);
  REQUIRE_FALSE(loaded.has_value());
  CHECK(loaded.error().code == ErrorCode::io);
  CHECK_THAT(loaded.error().what, Catch::Contains("embedding or head"));
}

TEST_CASE("trunk: loading can be interrupted with reads under way") {
  World world(15);
  auto made = TrunkStore::create(world.spec, world.plan(plenty), world.blocks, world.memory);
  REQUIRE(made.has_value());
  world.store = *std::move(made);
  ReadSchedulerOptions options;
  options.reader.buffers = world.memory.segments();
  auto started = ReadScheduler::start_with(options, &FakeDrive::make_reader, &world.drive);
  REQUIRE(started.has_value());
  world.scheduler = *std::move(started);
  const Status loaded =
      world.store->load(*world.scheduler, world.files, *supported_kernels().back(), world.activity,
                        [](std::uint64_t, std::uint64_t) { return false; });
  REQUIRE_FALSE(loaded.has_value());
  CHECK(loaded.error().code == ErrorCode::cancelled);
}

TEST_CASE("trunk plan: the smallest budget is named and works, one byte less does not") {
  World world(1);
  const auto refused = plan_trunk(world.spec, world.blocks, 1000);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::memory);
  const std::uint64_t least = advised_trunk(refused.error().what);
  CHECK(world.plan(least).total_bytes() <= least);
  CHECK_FALSE(plan_trunk(world.spec, world.blocks, least - 1).has_value());
}

TEST_CASE("trunk plan: it stays within its budget and pins as many layers as that holds") {
  World world(1);
  const std::uint64_t least = world.plan(plenty).smallest_bytes;
  const std::uint64_t all = world.plan(plenty).total_bytes();
  std::uint32_t pinned = 0;
  for (std::uint64_t budget = least; budget <= all; budget += 4096) {
    const TrunkPlan plan = world.plan(budget);
    REQUIRE(plan.total_bytes() <= budget);
    REQUIRE(plan.pinned_layers >= pinned);
    REQUIRE((plan.ring_bytes == 0) == (plan.pinned_layers == 5));
    REQUIRE((plan.streamed_bytes_per_step == 0) == (plan.pinned_layers == 5));
    pinned = plan.pinned_layers;
  }
  CHECK(world.plan(all).pinned_layers == 5);
  CHECK(world.plan(all - 1).pinned_layers < 5);
}
