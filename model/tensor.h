// Where a tensor lies in the files of a model. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/dtype.h"

namespace millrace {

// Where the scales of a scaled type lie: rows of tiles, one behind the other (dtype.h, ScaleTile).
struct ScaleExtent {
  ScaleType type = ScaleType::none;
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t bytes() const noexcept { return row_bytes * rows; }
};

// Where the packed zeros of an AWQ matrix lie: a row for each of its scales'.
struct ZeroExtent {
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t bytes() const noexcept { return row_bytes * rows; }
};

// What a converter would have done to the elements of a vector, and we do when we load it.
enum class VectorFix : std::uint8_t {
  none,
  unzip,      // of each row of ne[0] elements, the even ones first
  plus_one,   // norms that are published as what they differ from 1 by
  minus_exp,  // x becomes -exp(x)
};

// Columns of a matrix that a converter would have put into another order: they are groups x heads
// stretches of equal length, one group's behind the other's, and become heads x groups. The sums
// of a product depend on the order, so the columns are put there when they are loaded.
struct ColumnOrder {
  std::uint32_t groups = 0, heads = 0;  // 0: as they are
};

struct TensorInfo {
  std::string name;
  DType type = DType::f32;
  std::uint32_t dims = 1;  // 1..4
  std::array<std::uint64_t, 4> ne = {1, 1, 1,
                                     1};  // ne[0] fastest (row length); missing dimensions are 1
  std::uint32_t file = 0;                 // index into Checkpoint::files()
  std::uint64_t offset_bytes = 0;         // absolute in that file
  std::uint64_t bytes = 0;                // without scales and zeros
  ScaleExtent scales = {};                // of scaled types: all rows of ne[1], for each of ne[2]
  ZeroExtent zeros = {};                  // of AWQ
  bool zipped = false;  // rows belong to two matrices by turns (experts' gate and up)
  // Each stretch of ne[0] elements has one input's weights, of all rows: the matrix turned over.
  bool by_inputs = false;
  VectorFix fix = VectorFix::none;

  std::uint64_t row_bytes() const noexcept { return dtype_row_bytes(type, ne[0]); }
  std::uint64_t rows() const noexcept { return ne[1] * ne[2] * ne[3]; }
};

// A stretch of whole rows of one matrix in a file: a projection of one expert, or a trunk matrix.
// With scales it lies in two places, with zeros in three.
struct MatrixExtent {
  DType type = DType::f32;
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t row_step = 1;  // every how many rows there, also of scales, are ours
  bool by_inputs = false;      // row_bytes lie between a row's neighbouring columns
  ScaleExtent scales = {};
  ZeroExtent zeros = {};
  VectorFix fix = VectorFix::none;  // of vectors
  std::uint64_t fix_stretch = 0;    // elements that it goes by
  ColumnOrder column_order = {};    // of trunk matrices

  std::uint64_t bytes() const noexcept {  // our own
    return (by_inputs ? dtype_row_bytes(type, rows) * columns : row_bytes * rows) + scales.bytes() +
           zeros.bytes();
  }
  // From the first to the last of our bytes, without scales and zeros, and of the scales.
  std::uint64_t span_bytes() const noexcept {
    if (!by_inputs) return span(rows) * row_bytes;
    return (columns - 1) * row_bytes + dtype_row_bytes(type, span(rows));
  }
  std::uint64_t scale_span_bytes() const noexcept { return span(scales.rows) * scales.row_bytes; }

 private:
  std::uint64_t span(std::uint64_t count) const noexcept {
    return count == 0 ? 0 : (count - 1) * row_step + 1;
  }
};

}  // namespace millrace
