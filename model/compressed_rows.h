// CompressedRows: one compressor's part of a session: the rows that it has pooled out of blocks of
// positions, in the cache's type, and the values and scores of the positions that the next row
// will be pooled from, as float32. A view of memory that KvCache owns. Different channels of the
// pending values may be written by different threads; a row is read only after it was stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"
#include "model/cache_rows.h"

namespace millrace {

// What a compressor keeps. Default: nothing.
struct CompressedLayout {
  std::uint32_t ratio = 0;    // positions of a block
  std::uint32_t halves = 0;   // 2: blocks overlap, and the one before is pooled with half of the
                              // channels of its own
  std::uint32_t columns = 0;  // of a row
  std::uint32_t rows = 0;     // that there is room for

  std::size_t channels() const noexcept { return std::size_t{halves} * columns; }
  std::uint32_t pending() const noexcept { return ratio * halves; }  // positions kept
  std::uint64_t row_bytes(KvType type) const noexcept {
    return rows * std::uint64_t{cache_rows::bytes(columns, type)};
  }
  std::uint64_t pending_bytes() const noexcept {
    return 2 * sizeof(float) * std::uint64_t{pending()} * channels();
  }
};

class CompressedRows {
 public:
  CompressedRows() = default;
  // `rows` has row_bytes(), `pending` pending_bytes() of the layout.
  CompressedRows(const CompressedLayout& layout, KvType type, std::byte* rows, float* pending)
      : layout_(layout), type_(type), rows_(rows), pending_(pending) {}

  const CompressedLayout& layout() const noexcept { return layout_; }
  KvType type() const noexcept { return type_; }
  // Rows that a token at `position` sees: of all blocks up to its own, if it ends one.
  std::uint32_t visible(std::uint32_t position) const noexcept {
    return layout_.ratio == 0 ? 0 : (position + 1) / layout_.ratio;
  }
  const std::byte* row(std::size_t index) const noexcept { return rows_ + index * row_bytes(); }
  std::size_t row_bytes() const noexcept { return cache_rows::bytes(layout_.columns, type_); }
  std::size_t stride() const noexcept { return cache_rows::stride(layout_.columns, type_); }
  void store(const KernelTable& kernels, std::size_t index, const float* values) {
    cache_rows::store(kernels, type_, values, layout_.columns, rows_ + index * row_bytes());
  }

  // Of one of the last pending() positions: layout().channels() floats each.
  float* values(std::uint32_t position) noexcept { return place(position); }
  float* scores(std::uint32_t position) noexcept { return place(position) + layout_.channels(); }

  // Where the sequence stands: positions below are in. Going back is possible while the values of
  // the blocks concerned are still here.
  void set_next(std::uint32_t position) noexcept { next_ = position; }
  bool keeps(std::uint32_t position) const noexcept {
    if (layout_.ratio == 0 || position == 0) return true;
    const std::uint32_t block = position / layout_.ratio + 1;
    const std::uint32_t oldest = block > layout_.halves ? block - layout_.halves : 0;
    return position <= next_ && next_ <= oldest * layout_.ratio + layout_.pending();
  }
  // Becomes what `from`, of the same layout, which keeps(position), has of positions below it.
  void copy_from(const CompressedRows& from, std::uint32_t position) noexcept {
    if (layout_.ratio == 0) return;
    std::memcpy(rows_, from.rows_, position / layout_.ratio * row_bytes());
    std::memcpy(pending_, from.pending_, layout_.pending_bytes());
    next_ = position;
  }

 private:
  float* place(std::uint32_t position) noexcept {
    return pending_ + position % layout_.pending() * 2 * layout_.channels();
  }

  CompressedLayout layout_;
  KvType type_ = KvType::f16;
  std::byte* rows_ = nullptr;
  float* pending_ = nullptr;
  std::uint32_t next_ = 0;
};

}  // namespace millrace
