// What panels need beyond super-blocks in the scalar policy, and the definition of it. Meanings:
// kernels/isa/README.md. Included by panels_scalar.cpp only.
#pragma once

#include "kernels/isa/scalar_super.h"

namespace millrace {
namespace {

struct ScalarPanel : ScalarSuper {
  static constexpr std::size_t panels = 1;        // of 16 rows, in a tile
  static constexpr std::size_t panel_tokens = 2;  // of a tile
  static constexpr std::size_t turned_heads = 2;  // heads of a tile of scores, a power of two
  static constexpr std::size_t panel_super_tokens = 2;
  static constexpr std::size_t panel_float_tokens = 2;  // with one panel
  static constexpr std::size_t panel_tokens_min = 6;

  // Word q of lane j of v[d] becomes word d of lane j of v[q].
  static void transpose_words(B64 (&v)[4]) {
    B64 out[4];
    for (int d = 0; d < 4; ++d)
      for (int q = 0; q < 4; ++q)
        for (int j = 0; j < 4; ++j)
          std::memcpy(out[d].v + 16 * j + 4 * q, v[q].v + 16 * j + 4 * d, 4);
    for (int d = 0; d < 4; ++d) v[d] = out[d];
  }
  // Lane j of v[i] becomes lane i of v[j].
  static void transpose_lanes(B64 (&v)[4]) {
    B64 out[4];
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) std::memcpy(out[i].v + 16 * j, v[j].v + 16 * i, 16);
    for (int i = 0; i < 4; ++i) v[i] = out[i];
  }
  // Four bytes in every 32-bit lane.
  // sum + the dot of four bytes in each lane; w as in dot_biased.
  static I32x16 dot4_i(const I32x16& sum, const B64& w, const B64& a) {
    return map_i([&](int lane) {
      std::int32_t dot = sum.v[lane];
      for (int i = 4 * lane; i < 4 * lane + 4; ++i) dot += i8(w.v[i]) * i8(a.v[i]);
      return dot;
    });
  }
  // The same for codes 0 .. largest, up to `products_steps(largest)` (1, 2, 4 or 8) dots at a time,
  // in whatever the policy collects them: with p = begin(sum), then p = add(p, u, a) for each,
  // end(sum, p) is sum + all of them.
  using Products = I32x16;
  static constexpr std::size_t products_steps(unsigned /*largest*/) { return 8; }
  static Products begin_products(const I32x16& sum) { return sum; }
  static Products add_products(const Products& products, const B64& u, const B64& a) {
    return map_i([&](int lane) {
      std::int32_t dot = products.v[lane];
      for (int i = 4 * lane; i < 4 * lane + 4; ++i) dot += u.v[i] * i8(a.v[i]);
      return dot;
    });
  }
  static I32x16 end_products(const I32x16& /*sum*/, const Products& products) { return products; }
};

}  // namespace
}  // namespace millrace
