// Layout of slots, plans for a budget, floors.
#include <catch2/catch.hpp>
#include <numeric>

#include "prefetch/slot_plan.h"
#include "runtime/base/units.h"
#include "tests/prefetch/expert_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

const std::vector<std::uint32_t> block_512 = {512};
const std::vector<std::uint32_t> buffered = {1};
const SliceBytes small{4096, 4096, 4096};
const SliceBytes large{8192, 8192, 16384};

}  // namespace

TEST_CASE("slot plan: segments are a sixteenth of the slots, from 64 to 256 MiB") {
  CHECK(pool_segment_bytes(1) == 64 * MiB);
  CHECK(pool_segment_bytes(GiB) == 64 * MiB);
  CHECK(pool_segment_bytes(2 * GiB) == 128 * MiB);
  CHECK(pool_segment_bytes(2 * GiB + 1) == 128 * MiB);
  CHECK(pool_segment_bytes(3 * GiB + 20 * MiB) % (2 * MiB) == 0);
  CHECK(pool_segment_bytes(100 * GiB) == 256 * MiB);
}

TEST_CASE("slot layout: every window is whole blocks, and data starts at its residue inside") {
  const ExpertExtents extents = equal_extents(3, 7);
  for (const std::uint32_t block : {1u, 512u, 4096u, 16384u}) {
    const std::vector<std::uint32_t> blocks = {block};
    const SlotLayout layout(extents, blocks);
    for (LayerIndex l = 0; l < 3; ++l) {
      for (ExpertIndex e = 0; e < 7; ++e) {
        const ExpertPlacement& at = layout.at({l, e});
        const ExpertExtent& extent = extents.at({l, e});
        unsigned parts = 0;
        std::uint64_t end = 0;
        for (std::uint32_t i = 0; i < at.read_count; ++i) {
          const ExpertRead& read = at.reads[i];
          CHECK(read.offset_bytes % block == 0);
          CHECK(read.bytes % block == 0);
          CHECK(read.slot_offset_bytes % block == 0);
          CHECK(read.slot_offset_bytes % 64 == 0);
          CHECK(read.slot_offset_bytes >= end);
          CHECK(read.needed_bytes <= read.bytes);
          end = read.slot_offset_bytes + read.bytes;
          parts += read.parts;
        }
        CHECK(parts == slice_all);
        CHECK(whole_slices(parts | at.absent_parts) == slice_all);
        CHECK(end <= layout.classes()[at.slot_class].slot_bytes);
        CHECK(at.data_offset[0] % block == extent.gate.offset_bytes % block);
        CHECK(at.data_offset[1] % block == extent.up.offset_bytes % block);
        CHECK(at.data_offset[2] % block == extent.down.offset_bytes % block);
        CHECK(at.reads[at.read_count - 1].parts == slice_down);
        CHECK_FALSE(at.reads[at.read_count - 1].first);
      }
    }
  }
}

TEST_CASE("slot layout: residues differ between experts, and the slot has room for the worst") {
  const SlotLayout layout(equal_extents(1, 8, {1000, 1000, 1000}), block_512);
  REQUIRE(layout.classes().size() == 1);
  CHECK(layout.classes()[0].experts == 8);
  CHECK(layout.classes()[0].slot_bytes == 8192);  // at most 3 * 1536, in whole pages
}

TEST_CASE("slot layout: buffered files are read to the byte") {
  const ExpertExtents extents = equal_extents(1, 2);
  const SlotLayout layout(extents, buffered);
  CHECK(layout.at({0, 1}).read_bytes() == extents.at({0, 1}).bytes());
}

TEST_CASE("slot layout: gate and up that follow each other become one read, in either order") {
  std::vector<ExpertExtent> row(2);
  row[0] = {slice_at(100, 1000), slice_at(1100, 1000), slice_at(9000, 1000)};
  row[1] = {slice_at(21000, 1000), slice_at(20000, 1000), slice_at(22000, 1000)};
  const SlotLayout layout(ExpertExtents({row}), block_512);
  const ExpertPlacement& fused = layout.at({0, 0});
  REQUIRE(fused.read_count == 2);
  CHECK(fused.reads[0].parts == (slice_gate | slice_up));
  CHECK(fused.reads[0].bytes == 2560);
  CHECK(fused.data_offset[0] == 100);
  CHECK(fused.data_offset[1] == 1100);
  const ExpertPlacement& swapped = layout.at({0, 1});
  REQUIRE(swapped.read_count == 2);
  CHECK(swapped.data_offset[0] == swapped.data_offset[1] + 1000);
}

namespace {

// A slice of `rows` rows of packed FP4, its scales elsewhere.
MatrixExtent scaled_at(std::uint64_t offset, std::uint64_t scales, std::uint64_t rows) {
  return {.type = DType::fp4,
          .offset_bytes = offset,
          .row_bytes = 512,
          .rows = rows,
          .columns = 1024,
          .scales = {ScaleType::e8m0, 0, scales, 32, rows}};
}

}  // namespace

TEST_CASE("slot layout: scales that lie apart are reads of their own, or come with neighbours") {
  std::vector<ExpertExtent> row(2);
  row[0] = {scaled_at(0, 1 << 20, 8), scaled_at(9000, (1 << 20) + 256, 8),
            scaled_at(30000, 50000, 8)};
  row[1] = {scaled_at(60000, 64096, 8), scaled_at(70000, 90000, 8), scaled_at(80000, 84096, 8)};
  const SlotLayout layout(ExpertExtents({row}), buffered);
  const ExpertPlacement& apart = layout.at({0, 0});
  REQUIRE(apart.read_count == 5);  // the scales of gate and up are neighbours
  CHECK(apart.absent_parts == slice_all << zero_part_shift);
  CHECK(apart.data_offset[4] == apart.data_offset[3] + 256);
  CHECK(apart.read_bytes() == row[0].bytes());
  const ExpertPlacement& beside = layout.at({0, 1});
  REQUIRE(beside.read_count == 4);
  CHECK(beside.reads[0].parts == (1u | 8u));
  CHECK(beside.data_offset[3] == beside.data_offset[0] + 4096);
  CHECK(beside.reads[3].parts == (4u | 32u));
  for (const ExpertPlacement* at : {&apart, &beside}) {
    unsigned parts = at->absent_parts;
    for (std::uint32_t i = 0; i < at->read_count; ++i) parts |= at->reads[i].parts;
    CHECK(whole_slices(parts) == slice_all);
    CHECK(whole_slices(parts & ~16u) == (slice_gate | slice_down));
  }
}

TEST_CASE("slot layout: a slice with zeros is whole when these are there too") {
  const auto awq_at = [](std::uint64_t offset, std::uint64_t zeros) {
    return MatrixExtent{.type = DType::awq,
                        .offset_bytes = offset,
                        .row_bytes = 64,
                        .rows = 128,
                        .columns = 256,
                        .by_inputs = true,
                        .scales = {ScaleType::f16, 0, offset + (1 << 24), 256, 2},
                        .zeros = {0, zeros, 64, 2}};
  };
  // The zeros of gate follow its codes, those of the others lie apart.
  const ExpertExtent expert{awq_at(0, 256 * 64), awq_at(1 << 20, 1 << 25),
                            awq_at(1 << 21, 1 << 26)};
  const SlotLayout layout(ExpertExtents({{expert}}), buffered);
  const ExpertPlacement& at = layout.at({0, 0});
  REQUIRE(at.read_count == 8);
  CHECK(at.absent_parts == 0);
  CHECK(at.read_bytes() == expert.bytes());
  CHECK(expert.gate.bytes() == 256 * 64 + 2 * 256 + 2 * 64);
  CHECK(at.data_offset[6] == at.data_offset[0] + 256 * 64);
  unsigned parts = 0;
  for (std::uint32_t i = 0; i < at.read_count; ++i) parts |= at.reads[i].parts;
  CHECK(whole_slices(parts) == slice_all);
  CHECK(whole_slices(parts & ~(slice_up << zero_part_shift)) == (slice_gate | slice_down));
}

TEST_CASE("slot layout: gate and up by turns are read once, whatever their size") {
  MatrixExtent gate = scaled_at(96, 10 * MiB, 4096);
  gate.row_step = 2;
  MatrixExtent up = gate;
  up.offset_bytes += up.row_bytes;
  up.scales.offset_bytes += up.scales.row_bytes;
  const std::vector<ExpertExtent> row(1, {gate, up, scaled_at(20 * MiB, 30 * MiB, 4)});
  const SlotLayout layout(ExpertExtents({row}), buffered);
  const ExpertPlacement& at = layout.at({0, 0});
  REQUIRE(at.read_count == 4);
  CHECK(at.reads[0].bytes == 2 * 4096 * 512);
  CHECK(at.data_offset[1] == at.data_offset[0] + 512);
  CHECK(at.data_offset[4] == at.data_offset[3] + 32);
  CHECK(at.read_bytes() == row[0].bytes());
}

TEST_CASE("slot layout: large neighbours that waste no block stay two reads, so one can start") {
  std::vector<ExpertExtent> row(1);
  row[0] = {slice_at(0, MiB), slice_at(MiB, MiB), slice_at(2 * MiB, MiB)};
  CHECK(SlotLayout(ExpertExtents({row}), block_512).at({0, 0}).read_count == 3);
  CHECK(SlotLayout(ExpertExtents({row}), block_512).largest_read_bytes() == MiB);
  // Where larger reads are known to be faster: gate and up at once, never down with them.
  const SlotLayout joined(ExpertExtents({row}), block_512, 2 * MiB);
  CHECK(joined.at({0, 0}).read_count == 2);
  CHECK(joined.at({0, 0}).reads[0].bytes == 2 * MiB);
  CHECK(joined.at({0, 0}).reads[1].parts == 4);
  CHECK(joined.largest_read_bytes() == 2 * MiB);
  CHECK(SlotLayout(ExpertExtents({row}), block_512, 2 * MiB - 512).at({0, 0}).read_count == 3);
  row[0] = {slice_at(96, MiB), slice_at(MiB + 96, MiB), slice_at(2 * MiB + 96, MiB)};
  CHECK(SlotLayout(ExpertExtents({row}), block_512).at({0, 0}).read_count == 2);
}

TEST_CASE("slot layout: experts of different sizes get classes, layers without experts none") {
  std::vector<std::vector<ExpertExtent>> layers(3);
  layers[1].assign(4, {slice_at(0, 4096), slice_at(4096 * 4, 4096), slice_at(4096 * 9, 4096)});
  layers[2].assign(2, {slice_at(0, 8192), slice_at(8192 * 4, 8192), slice_at(8192 * 9, 8192)});
  const SlotLayout layout(ExpertExtents(layers), block_512);
  REQUIRE(layout.classes().size() == 2);
  CHECK(layout.classes()[0].slot_bytes == 3 * 4096);
  CHECK(layout.classes()[0].experts == 4);
  CHECK(layout.classes()[1].experts == 2);
  CHECK(layout.at({2, 1}).slot_class == 1);
  CHECK(layout.experts(0) == 0);
  CHECK(layout.experts() == 6);
}

TEST_CASE("slot layout: a file with a hundred sizes gets few classes, each expert one that fits") {
  std::vector<ExpertExtent> row;
  for (std::uint64_t i = 0; i < 100; ++i)
    row.push_back({slice_at(0, 4096), slice_at(1 << 20, 4096), slice_at(2 << 20, 4096 * (i + 1))});
  const SlotLayout layout(ExpertExtents({row}), block_512);
  CHECK(layout.classes().size() == SlotLayout::classes_max);
  std::uint64_t experts = 0;
  for (const SlotClass& c : layout.classes()) experts += c.experts;
  CHECK(experts == 100);
  for (ExpertIndex e = 0; e < 100; ++e)
    CHECK(layout.classes()[layout.at({0, e}).slot_class].slot_bytes >= 4096 * (e + 3));
}

TEST_CASE("slot plan: the budget is divided in proportion to each class's share of the pool") {
  const SlotLayout layout(merged_extents({small, small, small, large}, 64), buffered);
  REQUIRE(layout.classes().size() == 2);
  const std::uint64_t pool = 192 * 3 * 4096 + 64 * 32768;
  const auto plan = plan_slots(layout, pool / 4, 4);
  REQUIRE(plan);
  CHECK(plan->groups[0].slots == 48);
  CHECK(plan->groups[1].slots == 16);
  CHECK(plan->bytes == pool / 4);
  CHECK(plan->mapped_bytes >= plan->bytes);
  CHECK(plan->slots == 64);
  CHECK(plan->largest_bytes == pool);
  CHECK_FALSE(plan->complete);
}

TEST_CASE("slot plan: never more slots than experts") {
  const SlotLayout layout(merged_extents({small, large}, 8), buffered);
  const auto plan = plan_slots(layout, GiB, 4);
  REQUIRE(plan);
  CHECK(plan->slots == 16);
  CHECK(plan->complete);
  CHECK(plan->bytes == plan->largest_bytes);
}

TEST_CASE("slot plan: classes are merged when the budget is too small for top-k slots in each") {
  const SlotLayout layout(merged_extents({small, large}, 8), buffered);
  const auto apart = plan_slots(layout, 4 * 12288 + 4 * 32768, 4);
  REQUIRE(apart);
  CHECK(apart->groups.size() == 2);
  const auto merged = plan_slots(layout, 4 * 12288 + 4 * 32768 - 1, 4);
  REQUIRE(merged);
  REQUIRE(merged->groups.size() == 1);
  CHECK(merged->groups[0].slots == 5);
  CHECK(merged->groups[0].slot_bytes == 32768);
  CHECK(merged->group_of_class == std::vector<std::uint32_t>{0, 0});
}

TEST_CASE("slot plan: the smallest cache is top-k slots of the largest class; less is refused") {
  const SlotLayout layout(merged_extents({small, large}, 8), buffered);
  const auto smallest = plan_slots(layout, 4 * 32768, 4);
  REQUIRE(smallest);
  CHECK(smallest->slots == 4);
  CHECK(smallest->smallest_bytes == 4 * 32768);
  const auto refused = plan_slots(layout, 4 * 32768 - 1, 4);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::memory);
  CHECK(refused.error().what.find("--cache 131072") != std::string::npos);
  REQUIRE_FALSE(plan_slots(layout, 0, 4));
}

TEST_CASE("slot plan: every budget from the smallest up is legal and kept to") {
  const SlotLayout layout(merged_extents({small, {8192, 4096, 4096}, large}, 16), buffered);
  const auto any = plan_slots(layout, GiB, 6);
  REQUIRE(any);
  std::uint64_t slots_before = 0;
  for (std::uint64_t budget = any->smallest_bytes; budget <= any->largest_bytes; budget += 4096) {
    const auto plan = plan_slots(layout, budget, 6);
    REQUIRE(plan);
    CHECK(plan->bytes <= budget);
    CHECK(budget - plan->bytes < 32768 + 1);  // less than a slot is left over
    slots_before = plan->slots;
  }
  CHECK(slots_before == 48);
}

TEST_CASE("slot plan: a model without routed experts needs no slots") {
  const auto plan = plan_slots(SlotLayout(ExpertExtents({{}, {}}), buffered), 0, 1);
  REQUIRE(plan);
  CHECK(plan->slots == 0);
  CHECK(plan->complete);
}

TEST_CASE("layer floors: top-k slots are left to the layer that asks, the rest is protected") {
  CHECK(layer_floors(384, 48, 8) == std::vector<std::uint32_t>(48, 8));
  CHECK(layer_floors(8, 48, 8) == std::vector<std::uint32_t>(48, 0));
  CHECK(layer_floors(4000, 48, 8) == std::vector<std::uint32_t>(48, 8));
  CHECK(layer_floors(6, 1, 8) == std::vector<std::uint32_t>{0});
  for (std::uint32_t slots = 8; slots < 500; ++slots) {
    const auto floors = layer_floors(slots, 48, 8);
    const std::uint32_t sum = std::accumulate(floors.begin(), floors.end(), 0u);
    for (const std::uint32_t own : floors) REQUIRE(sum - own + 8 <= slots);
    if (slots < 384) REQUIRE(sum >= slots - 8);
  }
}
