#include "prefetch/slot_layout.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "io/alignment.h"
#include "runtime/base/units.h"

namespace millrace {
namespace {

constexpr std::uint64_t slot_alignment = 4096;  // PinnedMemory rounds blocks to this

// A stretch of a file, and the parts of the expert in it.
struct Stretch {
  std::uint32_t file = 0;
  std::uint64_t begin = 0, end = 0;
  unsigned parts = 0;
};

using Parts = std::array<Stretch, expert_parts>;

Parts parts_of(const ExpertExtent& expert) {
  Parts parts;
  std::size_t i = 0;
  for (const MatrixExtent* m : {&expert.gate, &expert.up, &expert.down}) {
    parts[i] = {m->file, m->offset_bytes, m->offset_bytes + m->span_bytes(), 1u << i};
    const std::size_t scales = i + scale_part_shift;
    parts[scales] = {m->scales.file, m->scales.offset_bytes,
                     m->scales.offset_bytes + m->scale_span_bytes(), 1u << scales};
    const std::size_t zeros = i + zero_part_shift;
    parts[zeros] = {m->zeros.file, m->zeros.offset_bytes, m->zeros.offset_bytes + m->zeros.bytes(),
                    1u << zeros};
    ++i;
  }
  return parts;
}

// Lays the reads of one expert one behind the other into a slot.
class Placer {
 public:
  Placer(std::span<const std::uint32_t> block_bytes, std::uint64_t join_bytes_max)
      : block_bytes_(block_bytes), join_bytes_max_(join_bytes_max) {}

  void place(const ExpertExtent& expert) {
    const Parts parts = parts_of(expert);
    add_joined(parts, {0, 1, 3, 4, 6, 7}, true);
    add_joined(parts, {2, 5, 8}, false);
    for (std::size_t i = 0; i < expert_parts; ++i) {
      const Stretch& part = parts[i];
      if (part.begin == part.end) made.absent_parts |= part.parts;
      for (std::uint32_t r = 0; r < made.read_count; ++r)
        if ((made.reads[r].parts & part.parts) != 0)
          made.data_offset[i] =
              made.reads[r].slot_offset_bytes + (part.begin - made.reads[r].offset_bytes);
    }
    made.data_bytes = {expert.gate.bytes(), expert.up.bytes(), expert.down.bytes()};
  }

  ExpertPlacement made;
  std::uint64_t end = 0;  // bytes of the slot in use
  std::uint64_t alignment = slot_alignment;

 private:
  bool join(const Stretch& a, const Stretch& b) const {
    const Stretch& low = a.begin <= b.begin ? a : b;
    const Stretch& high = &low == &a ? b : a;
    if (low.file != high.file || low.end < high.begin) return false;
    if (low.end > high.begin) return true;
    const std::uint32_t block = block_bytes_[low.file];
    const std::uint64_t together = block_window(low.begin, high.end - low.begin, block).bytes;
    const std::uint64_t apart = block_window(low.begin, low.end - low.begin, block).bytes +
                                block_window(high.begin, high.end - high.begin, block).bytes;
    return together < apart || together <= join_bytes_max_;
  }

  // Adds the reads of some parts, those together that belong together.
  void add_joined(const Parts& parts, std::initializer_list<std::size_t> indices, bool first) {
    std::array<Stretch, expert_parts> list;
    std::size_t count = 0;
    for (const std::size_t index : indices) {
      Stretch next = parts[index];
      if (next.begin == next.end) continue;
      std::size_t place = count;
      for (std::size_t i = 0; i < count;) {
        if (!join(list[i], next)) {
          ++i;
          continue;
        }
        next = {next.file, std::min(next.begin, list[i].begin), std::max(next.end, list[i].end),
                next.parts | list[i].parts};
        place = std::min(place, i);
        std::move(list.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                  list.begin() + static_cast<std::ptrdiff_t>(count),
                  list.begin() + static_cast<std::ptrdiff_t>(i));
        --count;
        i = 0;  // what it did not touch before it may touch now
      }
      place = std::min(place, count);
      std::move_backward(list.begin() + static_cast<std::ptrdiff_t>(place),
                         list.begin() + static_cast<std::ptrdiff_t>(count),
                         list.begin() + static_cast<std::ptrdiff_t>(count) + 1);
      list[place] = next;
      ++count;
    }
    for (std::size_t i = 0; i < count; ++i) add(list[i], first);
  }

  void add(const Stretch& stretch, bool first) {
    MILLRACE_CHECK(stretch.file < block_bytes_.size());
    const std::uint32_t block = block_bytes_[stretch.file];
    MILLRACE_CHECK(block > 0 && (block & (block - 1)) == 0);
    const BlockWindow read = block_window(stretch.begin, stretch.end - stretch.begin, block);
    const std::uint64_t start =
        round_up(end, std::max<std::uint64_t>(block, SlotLayout::window_alignment));
    made.reads[made.read_count++] = {.offset_bytes = read.offset_bytes,
                                     .bytes = read.bytes,
                                     .needed_bytes = read.needed_bytes,
                                     .slot_offset_bytes = start,
                                     .file = stretch.file,
                                     .parts = stretch.parts,
                                     .first = first};
    end = start + read.bytes;
    alignment = std::max<std::uint64_t>(alignment, block);
  }

  std::span<const std::uint32_t> block_bytes_;
  std::uint64_t join_bytes_max_;
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

std::uint64_t SlotLayout::largest_read_bytes() const noexcept {
  std::uint64_t largest = 0;
  for (const ExpertPlacement& place : placements_)
    for (std::uint32_t i = 0; i < place.read_count; ++i)
      largest = std::max(largest, place.reads[i].bytes);
  return largest;
}

SlotLayout::SlotLayout(const ExpertExtents& extents, std::span<const std::uint32_t> block_bytes,
                       std::uint64_t join_bytes_max) {
  std::map<Shape, std::uint64_t> slot_bytes;  // the largest need of each shape
  for (LayerIndex layer = 0; layer < extents.layers(); ++layer) {
    for (ExpertIndex expert = 0; expert < extents.experts(layer); ++expert) {
      const ExpertExtent& extent = extents.at({layer, expert});
      Placer placer(block_bytes, join_bytes_max);
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
