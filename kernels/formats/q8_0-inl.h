// Q8_0 over an ISA policy. What a block format offers to the products: kernels/README.md.
#pragma once

#include <cstring>

#include "kernels/blocks.h"
#include "kernels/formats/four_blocks-inl.h"

namespace millrace {
namespace {

struct FormatQ8_0 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ8_0);

  template <class Isa>
  static constexpr std::int32_t offset = Isa::signed_bias;

  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* quad, typename Isa::B64& lo,
                                           typename Isa::B64& hi) {
    codes_of<Isa>(BlocksOfRow<Isa, block_bytes>{quad}, lo, hi);
  }
  template <class Isa, class Blocks>
  [[gnu::always_inline]] static void codes_of(const Blocks& blocks, typename Isa::B64& lo,
                                              typename Isa::B64& hi) {
    lo = blocks.load(offsetof(BlockQ8_0, q));
    hi = blocks.load(offsetof(BlockQ8_0, q) + 16);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::I32x16 dot(const typename Isa::B64& lo,
                                                         const typename Isa::B64& a_lo,
                                                         const typename Isa::B64& hi,
                                                         const typename Isa::B64& a_hi) {
    return Isa::dot_i(lo, a_lo, hi, a_hi);
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
    const std::byte* q = block + offsetof(BlockQ8_0, q);
    out[0] = Isa::mul(scale, Isa::i8_to_f32(Isa::load_b16(q)));
    out[1] = Isa::mul(scale, Isa::i8_to_f32(Isa::load_b16(q + 16)));
  }
};

}  // namespace
}  // namespace millrace
