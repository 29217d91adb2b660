// Q4_0 over an ISA policy. What a block format offers to the products: kernels/README.md.
#pragma once

#include <cstring>

#include "kernels/blocks.h"

namespace millrace {
namespace {

struct FormatQ4_0 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_0);

  template <class Isa>
  static constexpr std::int32_t offset = 8;

  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* quad, typename Isa::B64& lo,
                                           typename Isa::B64& hi) {
    const auto q = Isa::template load_quad<block_bytes>(quad + offsetof(BlockQ4_0, q));
    lo = Isa::low_nibbles(q);
    hi = Isa::high_nibbles(q);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::I32x16 dot(const typename Isa::B64& lo,
                                                         const typename Isa::B64& a_lo,
                                                         const typename Isa::B64& hi,
                                                         const typename Isa::B64& a_hi) {
    return Isa::dot_u(lo, a_lo, hi, a_hi);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 scales(const std::byte* group) {
    return Isa::template gather_f16<block_bytes>(group);
  }

  static constexpr std::size_t step_vectors = 2;
  static constexpr std::size_t step_bytes = block_bytes;
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* block,
                                            typename Isa::F32x16 (&out)[step_vectors]) {
    std::uint16_t d;
    std::memcpy(&d, block, sizeof d);
    const auto scale = Isa::set1(Isa::half_to_float(d));
    const auto centre = Isa::set1(8.0f);
    const auto q = Isa::load_b16(block + offsetof(BlockQ4_0, q));
    out[0] = Isa::mul(scale, Isa::sub(Isa::i8_to_f32(Isa::low_nibbles(q)), centre));
    out[1] = Isa::mul(scale, Isa::sub(Isa::i8_to_f32(Isa::high_nibbles(q)), centre));
  }
};

}  // namespace
}  // namespace millrace
