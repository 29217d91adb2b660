#include "prefetch/slot_layout.h"

#include <algorithm>
#include <map>

#include "io/alignment.h"
#include "runtime/base/units.h"

namespace millrace {
namespace {

constexpr std::uint64_t slot_alignment = 4096;  // PinnedMemory rounds blocks to this

std::uint64_t end_of(const MatrixExtent& extent) { return extent.offset_bytes + extent.bytes(); }

// Lays the reads of one expert one behind the other into a slot.
class Placer {
 public:
  explicit Placer(std::span<const std::uint32_t> block_bytes) : block_bytes_(block_bytes) {}

  void place(const ExpertExtent& expert) {
    const MatrixExtent& low =
        expert.gate.offset_bytes <= expert.up.offset_bytes ? expert.gate : expert.up;
    const MatrixExtent& high = &low == &expert.gate ? expert.up : expert.gate;
    if (joined(low, high)) {
      const std::uint64_t data =
          add(low.file, low.offset_bytes, end_of(high), slice_gate | slice_up, true);
      const std::uint64_t second = data + low.bytes();
      made.data_offset[0] = &low == &expert.gate ? data : second;
      made.data_offset[1] = &low == &expert.gate ? second : data;
    } else {
      made.data_offset[0] = add(expert.gate, slice_gate, true);
      made.data_offset[1] = add(expert.up, slice_up, true);
    }
    made.data_offset[2] = add(expert.down, slice_down, false);
    made.data_bytes = {expert.gate.bytes(), expert.up.bytes(), expert.down.bytes()};
  }

  ExpertPlacement made;
  std::uint64_t end = 0;  // bytes of the slot in use
  std::uint64_t alignment = slot_alignment;

 private:
  bool joined(const MatrixExtent& low, const MatrixExtent& high) const {
    if (low.file != high.file || end_of(low) != high.offset_bytes) return false;
    const std::uint32_t block = block_bytes_[low.file];
    const std::uint64_t together =
        block_window(low.offset_bytes, low.bytes() + high.bytes(), block).bytes;
    const std::uint64_t apart = block_window(low.offset_bytes, low.bytes(), block).bytes +
                                block_window(high.offset_bytes, high.bytes(), block).bytes;
    return together < apart || together <= SlotLayout::joined_bytes_max;
  }

  std::uint64_t add(const MatrixExtent& slice, unsigned bits, bool first) {
    return add(slice.file, slice.offset_bytes, end_of(slice), bits, first);
  }

  // Returns where the data starts in the slot.
  std::uint64_t add(std::uint32_t file, std::uint64_t begin, std::uint64_t data_end, unsigned bits,
                    bool first) {
    MILLRACE_CHECK(file < block_bytes_.size() && begin < data_end);
    const std::uint32_t block = block_bytes_[file];
    MILLRACE_CHECK(block > 0 && (block & (block - 1)) == 0);
    const BlockWindow read = block_window(begin, data_end - begin, block);
    const std::uint64_t start =
        round_up(end, std::max<std::uint64_t>(block, SlotLayout::window_alignment));
    made.reads[made.read_count++] = {.offset_bytes = read.offset_bytes,
                                     .bytes = read.bytes,
                                     .needed_bytes = read.needed_bytes,
                                     .slot_offset_bytes = start,
                                     .file = file,
                                     .bits = bits,
                                     .first = first};
    end = start + read.bytes;
    alignment = std::max<std::uint64_t>(alignment, block);
    return start + read.skip_bytes;
  }

  std::span<const std::uint32_t> block_bytes_;
};

// Experts with equal slices belong together: their slots differ only by the residue.
using Shape = std::array<std::uint64_t, 3>;

Shape shape_of(const ExpertExtent& expert) {
  return {expert.gate.bytes(), expert.up.bytes(), expert.down.bytes()};
}

// Merges neighbours of an ascending list until it is short enough, where it wastes least.
void limit_classes(std::vector<SlotClass>& classes) {
  while (classes.size() > SlotLayout::classes_max) {
    std::size_t best = 0;
    std::uint64_t best_waste = ~std::uint64_t{0};
    for (std::size_t i = 0; i + 1 < classes.size(); ++i) {
      const std::uint64_t waste =
          (classes[i + 1].slot_bytes - classes[i].slot_bytes) * classes[i].experts;
      if (waste < best_waste) {
        best = i;
        best_waste = waste;
      }
    }
    classes[best + 1].experts += classes[best].experts;
    classes.erase(classes.begin() + static_cast<std::ptrdiff_t>(best));
  }
}

}  // namespace

SlotLayout::SlotLayout(const ExpertExtents& extents, std::span<const std::uint32_t> block_bytes) {
  std::map<Shape, std::uint64_t> slot_bytes;  // the largest need of each shape
  for (LayerIndex layer = 0; layer < extents.layers(); ++layer) {
    for (ExpertIndex expert = 0; expert < extents.experts(layer); ++expert) {
      const ExpertExtent& extent = extents.at({layer, expert});
      Placer placer(block_bytes);
      placer.place(extent);
      placements_.push_back(placer.made);
      std::uint64_t& need = slot_bytes[shape_of(extent)];
      need = std::max(need, round_up(placer.end, placer.alignment));
    }
    layer_begin_.push_back(static_cast<std::uint32_t>(placements_.size()));
  }

  std::map<std::uint64_t, std::uint64_t> experts_of_size;
  for (LayerIndex layer = 0; layer < extents.layers(); ++layer)
    for (ExpertIndex expert = 0; expert < extents.experts(layer); ++expert)
      ++experts_of_size[slot_bytes[shape_of(extents.at({layer, expert}))]];
  for (const auto& [bytes, experts] : experts_of_size) classes_.push_back({bytes, experts});
  limit_classes(classes_);

  for (LayerIndex layer = 0; layer < extents.layers(); ++layer) {
    for (ExpertIndex expert = 0; expert < extents.experts(layer); ++expert) {
      const std::uint64_t need = slot_bytes[shape_of(extents.at({layer, expert}))];
      const auto found = std::lower_bound(
          classes_.begin(), classes_.end(), need,
          [](const SlotClass& c, std::uint64_t bytes) { return c.slot_bytes < bytes; });
      placements_[index({layer, expert})].slot_class =
          static_cast<std::uint32_t>(found - classes_.begin());
    }
  }
}

}  // namespace millrace
