// Products by panels, for the tests of the weight products.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "kernels/panel_kernels.h"
#include "tests/kernels/values.h"

namespace millrace::testing {

// Scratch of exactly the promised size, aligned as promised, filled with what must not matter.
class PanelBytes {
 public:
  explicit PanelBytes(std::size_t columns) : bytes_(panel_scratch_bytes(columns)) {
    std::memset(bytes_.data(), 0xff, bytes_.span().size());
    MILLRACE_CHECK(reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64 == 0);
  }
  std::byte* data() { return bytes_.data(); }

 private:
  GuardedArray<std::byte> bytes_;
};

// All tokens by panels, the rows that are left over as ever, with a wider stride than needed and
// guarded ends.
template <class Panel, class Matmul, class Batch>
std::vector<float> by_panels(Panel panel_matmul, Matmul matmul, const WeightRows& weights,
                             const Batch& batch, std::size_t tokens) {
  const std::size_t stride = weights.rows + 5;
  GuardedArray<float> y(std::vector<float>((tokens - 1) * stride + weights.rows, untouched));
  PanelBytes scratch(weights.columns);
  const std::size_t done = panel_matmul(weights, batch, tokens, y.data(), stride, scratch.data());
  CHECK(done <= weights.rows);
  CHECK(weights.rows - done < panel_tile_rows);
  for (std::size_t r = done; r < weights.rows; ++r) CHECK(y.data()[r] == untouched);
  if (done < weights.rows) {
    WeightRows rest = weights;
    rest.data += done * weights.row_bytes;
    rest.tile_row += done;
    rest.rows -= done;
    matmul(rest, batch, tokens, y.data() + done, stride);
  }
  std::vector<float> out;
  for (std::size_t i = 0; i < y.span().size(); ++i) {
    if (i % stride < weights.rows) out.push_back(y.data()[i]);
    else CHECK(y.data()[i] == untouched);
  }
  return out;
}

}  // namespace millrace::testing
