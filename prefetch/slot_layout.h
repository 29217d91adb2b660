// How the slices of each expert lie in a slot, and which reads bring them there. Every read is a
// window rounded outward to whole device blocks on its own (the residue `offset % block` differs
// from expert to expert), so reads land in place and the weights start at that residue inside the
// window. Built once from the extents and the files' block sizes, then read-only: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/expert_extents.h"
#include "model/expert_source.h"
#include "runtime/base/check.h"
#include "runtime/base/ids.h"

namespace millrace {

// One read of one expert. `slot_offset_bytes` counts from the start of the slot.
struct ExpertRead {
  std::uint64_t offset_bytes = 0;  // in the file, a multiple of its block
  std::uint64_t bytes = 0;         // a multiple of the block; may end past the end of the file
  std::uint64_t needed_bytes = 0;  // from offset_bytes to the end of the last slice
  std::uint64_t slot_offset_bytes = 0;
  std::uint32_t file = 0;
  unsigned parts = 0;  // the Part bits that this read brings whole
  bool first = false;  // of gate or up: before any of down (never read together)
};

// What an expert consists of, as bits: the codes of its slices, as in Slice, their scales, and
// their zeros.
inline constexpr std::size_t expert_parts = 9;
inline constexpr unsigned scale_part_shift = 3;
inline constexpr unsigned zero_part_shift = 6;
// The slices that are whole.
constexpr unsigned whole_slices(unsigned parts) noexcept {
  return parts & parts >> scale_part_shift & parts >> zero_part_shift & slice_all;
}

// Where an expert's parts go in any slot of at least its class's size.
struct ExpertPlacement {
  std::array<ExpertRead, expert_parts> reads;  // the first `read_count`, in order of need
  // Of gate, up, down, then of their scales, then of their zeros, from the start of the slot.
  std::array<std::uint64_t, expert_parts> data_offset{};
  std::array<std::uint64_t, 3> data_bytes{};  // of gate, up, down with these
  std::uint32_t read_count = 0;
  unsigned absent_parts = 0;  // scales and zeros that the types do not have
  std::uint32_t slot_class = 0;

  std::uint64_t read_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < read_count; ++i) sum += reads[i].bytes;
    return sum;
  }
};

// Experts that share a slot size.
struct SlotClass {
  std::uint64_t slot_bytes = 0;  // a multiple of 4096 and of the files' blocks
  std::uint64_t experts = 0;
};

class SlotLayout {
 public:
  // More sizes than this (files that mix types per expert) are merged upward where it wastes least.
  static constexpr std::size_t classes_max = 16;
  // Parts that follow each other in the file (fused gate_up, packed experts, scales, zeros) are
  // read at once when that saves blocks, or when together they are this small, so that a read costs
  // more than an earlier start brings; larger ones where the drive is known to read them faster.
  // Parts that lie in each other (zipped gate and up) always are.
  static constexpr std::uint64_t joined_bytes_max = std::uint64_t{256} << 10;
  // Windows start at least so aligned in the slot (and at multiples of the file's block).
  static constexpr std::uint64_t window_alignment = 64;

  SlotLayout() = default;
  // `block_bytes[f]` is File::block_bytes() of file f: a power of two, 1 when buffered. Slices are
  // not empty and every file index is known (checked: the readers of containers see to it).
  SlotLayout(const ExpertExtents& extents, std::span<const std::uint32_t> block_bytes,
             std::uint64_t join_bytes_max = joined_bytes_max);

  std::span<const SlotClass> classes() const noexcept { return classes_; }  // ascending size
  std::uint32_t layers() const noexcept {
    return static_cast<std::uint32_t>(layer_begin_.size()) - 1;
  }
  std::uint32_t experts(LayerIndex layer) const noexcept {
    return layer_begin_[layer + 1] - layer_begin_[layer];
  }
  std::uint32_t experts() const noexcept { return layer_begin_.back(); }  // of all layers
  // Dense number of an expert, 0 .. experts() - 1.
  std::uint32_t index(ExpertKey key) const noexcept {
    MILLRACE_CHECK(key.layer < layers() && key.expert < experts(key.layer));
    return layer_begin_[key.layer] + key.expert;
  }
  const ExpertPlacement& at(ExpertKey key) const noexcept { return placements_[index(key)]; }
  std::uint64_t largest_read_bytes() const noexcept;

 private:
  std::vector<std::uint32_t> layer_begin_ = {0};
  std::vector<ExpertPlacement> placements_;
  std::vector<SlotClass> classes_;
};

}  // namespace millrace
