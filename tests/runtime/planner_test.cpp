// The plan: its sums, its refusals, and advice that works when it is followed.
#include "runtime/planner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/pipeline/batch_walk.h"
#include "runtime/presets.h"
#include "tests/support/tiny_checkpoint.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

// A tiny model whose matrices claim to be `times` as long: sums as of a large one.
ModelSpec scaled_spec(const TinyShape& shape, std::uint64_t times) {
  auto read = tiny_spec(TinyModel(shape));
  if (!read) FAIL(read.error().what);
  ModelSpec spec = *std::move(read);
  const auto grow = [&](MatrixExtent& extent) {
    extent.row_bytes *= times;
    extent.offset_bytes *= times;
  };
  std::vector<std::vector<ExpertExtent>> experts(spec.layers.size());
  for (LayerIndex layer = 0; layer < spec.layers.size(); ++layer) {
    for (auto& matrix : spec.layers[layer].matrices)
      if (matrix) grow(*matrix);
    for (ExpertIndex expert = 0; expert < spec.experts.experts(layer); ++expert) {
      experts[layer].push_back(spec.experts.at({layer, expert}));
      grow(experts[layer].back().gate);
      grow(experts[layer].back().up);
      grow(experts[layer].back().down);
    }
  }
  spec.experts = ExpertExtents(std::move(experts));
  grow(spec.embedding);
  grow(spec.head);
  return spec;
}

TinyShape six_layers() {
  TinyShape shape;
  shape.layers = 6;
  return shape;
}

struct World {
  explicit World(const TinyShape& shape = six_layers(), std::uint64_t times = 1024,
                 std::uint32_t block = 4096)
      : spec(scaled_spec(shape, times)), blocks{block}, layout(spec.experts, blocks) {
    config.batch_tokens = 64;
    machine.memory_available = 1024 * GiB;
    machine.memory_source = "MemAvailable";
    machine.cores = 6;
  }
  Result<Plan> make() const { return make_plan({spec, layout, blocks, config, machine}); }
  Plan plan() const {
    auto made = make();
    if (!made) FAIL(made.error().what);
    return *std::move(made);
  }
  void set_cache(std::uint64_t bytes) { config.cache = {SizeSpec::Kind::bytes, bytes, 0}; }
  void set_trunk(std::uint64_t bytes) { config.trunk = {SizeSpec::Kind::bytes, bytes, 0}; }

  ModelSpec spec;
  std::vector<std::uint32_t> blocks;
  SlotLayout layout;
  EngineConfig config;
  Machine machine;
};

std::optional<std::uint64_t> advised(const std::string& text, const std::string& flag) {
  const std::size_t at = text.find(flag + " ");
  if (at == std::string::npos) return std::nullopt;
  return std::stoull(text.substr(at + flag.size() + 1));
}

void check_usage(const World& world, const std::vector<std::string>& parts) {
  const auto made = world.make();
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == ErrorCode::usage);
  for (const std::string& part : parts) CHECK_THAT(made.error().what, Catch::Contains(part));
}

}  // namespace

TEST_CASE("plan: the sum is that of its parts, each what its owner says it needs") {
  const World world;
  const Plan plan = world.plan();
  CHECK(plan.total_bytes() == plan.trunk.total_bytes() + plan.slots.mapped_bytes + plan.kv_bytes +
                                  plan.workspace_bytes + plan.measuring_bytes + plan.program_bytes);
  CHECK(plan.kv_bytes ==
        SequenceState::bytes(world.spec.hparams, plan.context, KvType::f16, plan.batch_tokens));
  CHECK(plan.workspace_bytes ==
        BatchWalk::bytes(world.spec, plan.batch_tokens, plan.logits_rows, plan.threads));
  CHECK(plan.trunk.total_bytes() >= world.spec.trunk_bytes());
  CHECK(plan.slots.bytes >= world.spec.experts.pool_bytes());
  CHECK(plan.program_bytes > 8 * MiB);
  CHECK_THAT(plan.describe(), Catch::Contains("trunk") && Catch::Contains("expert cache") &&
                                  Catch::Contains("KV cache") && Catch::Contains("-ub 64"));
}

TEST_CASE("plan: several sequences have a KV cache each and go through a step in one part") {
  World world;
  const Plan one = world.plan();
  world.config.sequences = 5;
  world.config.batch_tokens = 1;
  const Plan five = world.plan();
  CHECK(five.batch_tokens == 5);
  CHECK(five.logits_rows >= 5);
  CHECK(five.kv_bytes ==
        5 * SequenceState::bytes(world.spec.hparams, five.context, KvType::f16, five.batch_tokens));
  CHECK(five.kv_bytes > one.kv_bytes);
  CHECK_THAT(five.describe(), Catch::Contains("5 x "));
  for (const std::uint32_t wrong : {0u, sequences_max + 1}) {
    world.config.sequences = wrong;
    check_usage(world, {"--parallel " + std::to_string(wrong)});
  }
}

TEST_CASE("plan: the preset auto takes everything on a large machine") {
  const Plan plan = World().plan();
  CHECK(plan.slots.complete);
  CHECK(plan.trunk.ring_bytes == 0);
}

TEST_CASE("plan: the preset auto pins the trunk first and stays within 95 % on every machine") {
  World world;
  const Plan whole = world.plan();
  World least;
  least.set_cache(whole.slots.smallest_bytes);
  least.set_trunk(whole.trunk.smallest_bytes);
  std::uint64_t cache_before = 0;
  std::uint32_t pinned_before = 0;
  bool streamed = false;
  for (std::uint64_t available = 8 * MiB; available < 2 * whole.total_bytes();
       available += available / 16) {
    world.machine.memory_available = least.machine.memory_available = available;
    const auto made = world.make();
    INFO(available << " bytes available" << (made ? "" : ": " + made.error().what));
    if (!made) {
      // Then nothing else works either.
      CHECK(made.error().code == ErrorCode::memory);
      CHECK_FALSE(least.make().has_value());
      continue;
    }
    CHECK(made->total_bytes() <= available / 100 * 95);
    CHECK(made->trunk.pinned_layers >= pinned_before);
    // The cache gets what is too little for one more layer of the trunk.
    if (made->trunk.ring_bytes > 0)
      CHECK(made->slots.bytes - made->slots.smallest_bytes < made->trunk.ring_bytes / 2);
    else CHECK(made->slots.bytes >= cache_before);
    streamed |= made->trunk.ring_bytes > 0;
    cache_before = made->trunk.ring_bytes > 0 ? 0 : made->slots.bytes;
    pinned_before = made->trunk.pinned_layers;
  }
  CHECK(streamed);
  CHECK(cache_before == whole.slots.bytes);
}

TEST_CASE("plan: past 95 % it is refused with numbers that work when followed") {
  std::size_t refused = 0, advised_cache = 0, advised_both = 0, hopeless = 0;
  for (const std::uint64_t times : {64u, 1024u, 3000u}) {
    World world(six_layers(), times);
    world.config.cache = world.config.trunk = {SizeSpec::Kind::all, 0, 0};
    const Plan whole = world.plan();
    for (std::uint64_t available = 16 * MiB; available < 2 * whole.total_bytes();
         available += available / 7) {
      world.machine.memory_available = available;
      const auto made = world.make();
      if (made) continue;
      ++refused;
      INFO(made.error().what);
      REQUIRE(made.error().code == ErrorCode::memory);
      CHECK_THAT(made.error().what, Catch::Contains("m.gguf") && Catch::Contains("95 %") &&
                                        Catch::Contains("MemAvailable"));
      const auto cache = advised(made.error().what, "--cache");
      const auto trunk = advised(made.error().what, "--trunk");
      World follower = world;
      if (cache) follower.set_cache(*cache);
      if (trunk) follower.set_trunk(*trunk);
      REQUIRE((cache || trunk));
      if (made.error().what.find("even ") != std::string::npos) {
        ++hopeless;
        CHECK_FALSE(follower.make().has_value());
        continue;
      }
      ++(trunk ? advised_both : advised_cache);
      const auto followed = follower.make();
      if (!followed) FAIL(followed.error().what);
      CHECK(followed->total_bytes() <= available / 100 * 95);
    }
  }
  CHECK(refused > 20);
  CHECK(advised_cache > 3);
  CHECK(advised_both > 3);
  CHECK(hopeless > 3);
}

TEST_CASE("plan: a dense model has no slots, its advice no --cache") {
  TinyShape shape = dense_shape();
  shape.layers = 5;
  shape.dense_width.assign(5, 96);
  World world(shape, 4096);
  world.config.trunk = {SizeSpec::Kind::all, 0, 0};
  CHECK(world.plan().slots.slots == 0);
  world.machine.memory_available = world.plan().total_bytes();
  const auto made = world.make();
  REQUIRE_FALSE(made.has_value());
  CHECK_FALSE(advised(made.error().what, "--cache").has_value());
  const auto trunk = advised(made.error().what, "--trunk");
  INFO(made.error().what);
  REQUIRE(trunk.has_value());
  world.set_trunk(*trunk);
  CHECK(world.make().has_value());
}

TEST_CASE("plan: the control group that sets the limit is named") {
  World world;
  world.machine.memory_available = 16 * MiB;
  world.machine.memory_source = "cgroup limit of 20.0 MiB";
  const auto made = world.make();
  REQUIRE_FALSE(made.has_value());
  CHECK_THAT(made.error().what, Catch::Contains("that cgroup limit of 20.0 MiB leaves"));
}

TEST_CASE("plan: a cache or trunk that is too small is refused with the smallest that works") {
  World world;
  world.set_cache(1000);
  const auto cache = world.make();
  REQUIRE_FALSE(cache.has_value());
  CHECK(cache.error().code == ErrorCode::memory);
  CHECK_THAT(cache.error().what, Catch::StartsWith("m.gguf: "));
  const std::uint64_t least_cache = advised(cache.error().what, "--cache").value_or(0);
  world.set_cache(least_cache);
  CHECK(world.plan().slots.bytes == least_cache);
  world.set_cache(least_cache - 1);
  CHECK_FALSE(world.make().has_value());

  World ring;
  ring.set_trunk(1000);
  const auto trunk = ring.make();
  REQUIRE_FALSE(trunk.has_value());
  const std::uint64_t least_trunk = advised(trunk.error().what, "--trunk").value_or(0);
  ring.set_trunk(least_trunk);
  CHECK(ring.plan().trunk.ring_bytes > 0);
  ring.set_trunk(least_trunk - 1);
  CHECK_FALSE(ring.make().has_value());
}

TEST_CASE("plan: sizes in percent are of the pool and of the trunk, 100 % and all are everything") {
  World world;
  const std::uint64_t pool = world.spec.experts.pool_bytes();
  world.config.cache = {SizeSpec::Kind::percent, 0, 50};
  CHECK(world.plan().slots.bytes <= pool / 2);
  CHECK(world.plan().slots.bytes > pool / 3);
  for (const SizeSpec all :
       {SizeSpec{SizeSpec::Kind::percent, 0, 100}, SizeSpec{SizeSpec::Kind::all, 0, 0}}) {
    world.config.cache = world.config.trunk = all;
    CHECK(world.plan().slots.complete);
    CHECK(world.plan().trunk.ring_bytes == 0);
  }
  world.config.trunk = {SizeSpec::Kind::percent, 0, 90};
  CHECK(world.plan().trunk.total_bytes() <= world.spec.trunk_bytes() / 10 * 9);
}

TEST_CASE("plan: presets bound cache and trunk, flags come before them, unknown ones are listed") {
  World world(six_layers(), 65536);  // a pool of 24 GiB
  for (const Preset& preset : presets()) {
    if (preset.automatic) continue;
    world.config.preset = preset.name;
    const auto made = world.make();
    if (!made) {  // the embedding alone is larger than the preset's trunk
      CHECK_THAT(made.error().what, Catch::Contains("--trunk"));
      continue;
    }
    CHECK(made->slots.bytes <= preset.cache_bytes);
    CHECK(made->trunk.total_bytes() <= preset.trunk_bytes);
  }
  CHECK(find_preset("tiny")->cache_bytes == 1 * GiB);
  CHECK(find_preset("laptop")->cache_bytes == 8 * GiB);
  CHECK(find_preset("laptop")->trunk_bytes == 4 * GiB);
  CHECK(find_preset("server")->cache_bytes == 64 * GiB);
  CHECK(find_preset("server")->trunk_bytes == 48 * GiB);
  world.config.preset = "server";
  world.set_cache(3 * GiB);
  CHECK(world.plan().slots.bytes <= 3 * GiB);
  world.config.preset = "huge";
  check_usage(world, {"--preset huge", "tiny, laptop, server, auto"});
}

TEST_CASE("plan: context, batch and threads have defaults and bounds") {
  World world;
  CHECK(world.plan().context == 64);  // as trained
  CHECK(world.plan().threads == 6);
  world.spec.hparams.context = 100000;
  CHECK(world.plan().context == 4096);
  world.config.context = 32;
  world.config.batch_tokens = 512;
  CHECK(world.plan().context == 32);
  CHECK(world.plan().batch_tokens == 32);
  world.machine.cores = limits::threads_max + 100;
  CHECK(world.plan().threads == limits::threads_max);
  world.config.threads = limits::threads_max + 1;
  check_usage(world, {"-t 257"});
  world.config.threads = 3;
  CHECK(world.plan().threads == 3);
  world.config.batch_tokens = 0;
  check_usage(world, {"-ub 0"});
  world.config.batch_tokens = limits::batch_tokens_max + 1;
  check_usage(world, {"-ub 4097"});
  world.config.batch_tokens = 1;
  world.config.context = limits::context_max + 1;
  check_usage(world, {"-c 16777217"});
  const LogLevel level = log_level();
  set_log_level(LogLevel::error);
  world.config.context = 200000;  // more than trained: allowed with a warning
  CHECK(world.plan().context == 200000);
  set_log_level(level);
}

TEST_CASE("plan: f32 keys and values are twice as large") {
  World world;
  world.config.context = 1u << 16;
  const LogLevel level = log_level();
  set_log_level(LogLevel::error);
  const std::uint64_t half = world.plan().kv_bytes;
  world.config.kv = KvType::f32;
  CHECK(world.plan().kv_bytes == 2 * half);
  set_log_level(level);
}
