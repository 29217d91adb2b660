// What panels need beyond super-blocks in a NEON policy. Meanings: kernels/isa/README.md. Included
// by the panels of NEON and its extensions only.
#pragma once

#include "kernels/isa/neon_super.h"

namespace millrace {
namespace {

template <class Base>
struct NeonPanelOf : Base {
  using typename Base::B64;
  static constexpr std::size_t panels = 1;
  static constexpr std::size_t turned_heads = 2;
  static constexpr std::size_t panel_float_tokens = 6;
  static constexpr std::size_t panel_tokens_min = 6;

  static void transpose_words(B64 (&v)[4]) {
    for (int j = 0; j < 4; ++j) {
      const auto at = [&](int i) { return vreinterpretq_s32_u8(v[i].v[j]); };
      const int32x4_t even_front = vtrn1q_s32(at(0), at(1));
      const int32x4_t odd_front = vtrn2q_s32(at(0), at(1));
      const int32x4_t even_back = vtrn1q_s32(at(2), at(3));
      const int32x4_t odd_back = vtrn2q_s32(at(2), at(3));
      v[0].v[j] = vreinterpretq_u8_s32(Base::low_pairs(even_front, even_back));
      v[1].v[j] = vreinterpretq_u8_s32(Base::low_pairs(odd_front, odd_back));
      v[2].v[j] = vreinterpretq_u8_s32(Base::high_pairs(even_front, even_back));
      v[3].v[j] = vreinterpretq_u8_s32(Base::high_pairs(odd_front, odd_back));
    }
  }
  static void transpose_lanes(B64 (&v)[4]) {
    const B64 in[4] = {v[0], v[1], v[2], v[3]};
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) v[i].v[j] = in[j].v[i];
  }
};

struct NeonPanel : NeonPanelOf<NeonSuper> {
  static constexpr std::size_t panel_tokens = 3;
  static constexpr std::size_t panel_super_tokens = 2;

  // Two products of at most 128 * 127 fit in 16 bits.
  static I32x16 dot4_i(const I32x16& sum, const B64& w, const B64& a) {
    return map_i([&](int i) {
      return vpadalq_s16(sum.v[i],
                         vpaddq_s16(low_products(w.v[i], a.v[i]), high_products(w.v[i], a.v[i])));
    });
  }
  // Sums in 16 bits, one for each byte.
  struct Products {
    int16x8_t low[4];
    int16x8_t high[4];
  };
  static constexpr std::size_t products_steps(unsigned largest) {
    const unsigned most = 32767u / (127 * largest);
    return most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
  }
  static Products begin_products(const I32x16& /*sum*/) {
    const int16x8_t zero = vdupq_n_s16(0);
    return {{zero, zero, zero, zero}, {zero, zero, zero, zero}};
  }
  static Products add_products(const Products& products, const B64& u, const B64& a) {
    Products out;
    for (int i = 0; i < 4; ++i) {
      out.low[i] = add_low_products(products.low[i], u.v[i], a.v[i]);
      out.high[i] = add_high_products(products.high[i], u.v[i], a.v[i]);
    }
    return out;
  }
  static I32x16 end_products(const I32x16& sum, const Products& products) {
    return map_i([&](int i) {
      const int32x4_t low = vpaddlq_s16(products.low[i]);
      return vaddq_s32(sum.v[i], vpaddq_s32(low, vpaddlq_s16(products.high[i])));
    });
  }
};

}  // namespace
}  // namespace millrace
