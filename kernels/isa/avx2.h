// AVX2 with FMA and F16C: 16 lanes are two registers. Meanings: kernels/isa/README.md. Included by
// the tables of AVX2 and its extensions only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

struct Avx2 {
  static constexpr const char* name = "avx2";
  static constexpr std::size_t matvec_rows = 4;
  static constexpr std::size_t tile_rows = 2;
  static constexpr std::size_t tile_tokens = 4;

  struct F32x16 {
    __m256 lo, hi;
  };
  struct I32x16 {
    __m256i lo, hi;
  };
  using Mask16 = I32x16;  // all ones where it holds
  using B16 = __m128i;
  struct B64 {
    __m256i lo, hi;
  };

  // Masks for the first `lanes` lanes.
  static I32x16 first(std::size_t lanes) {
    alignas(32) static constexpr std::int32_t ones_then_zeros[32] = {
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    return load_i(ones_then_zeros + 16 - lanes);
  }

  // --- float ---
  static F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F32x16 load_first(const float* p, std::size_t lanes) {
    const I32x16 m = first(lanes);
    return {_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
  }
  static void store(float* p, const F32x16& a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
  }
  static void store_first(float* p, const F32x16& a, std::size_t lanes) {
    const I32x16 m = first(lanes);
    _mm256_maskstore_ps(p, m.lo, a.lo);
    _mm256_maskstore_ps(p + 8, m.hi, a.hi);
  }
  static F32x16 add(const F32x16& a, const F32x16& b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  static F32x16 sub(const F32x16& a, const F32x16& b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  static F32x16 mul(const F32x16& a, const F32x16& b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  static F32x16 div(const F32x16& a, const F32x16& b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  static F32x16 sqrt(const F32x16& a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
  static F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static F32x16 min(const F32x16& a, const F32x16& b) {
    return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
  }
  static F32x16 max(const F32x16& a, const F32x16& b) {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  static Mask16 less(const F32x16& a, const F32x16& b) {
    return bits({_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)});
  }
  static Mask16 equal(const F32x16& a, const F32x16& b) {
    return bits({_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)});
  }
  static F32x16 select(const Mask16& m, const F32x16& a, const F32x16& b) {
    return from_bits(select_i(m, bits(a), bits(b)));
  }
  static int lanes_set(const Mask16& m) {
    const F32x16 f = from_bits(m);
    return _mm256_movemask_ps(f.lo) | _mm256_movemask_ps(f.hi) << 8;
  }
  static bool any(const Mask16& m) { return lanes_set(m) != 0; }
  static bool all(const Mask16& m) { return lanes_set(m) == 0xffff; }
  static float tree_sum(const F32x16& a) {
    const __m256 by8 = _mm256_add_ps(a.lo, a.hi);
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }
  static float tree_max(const F32x16& a) {
    const __m256 by8 = _mm256_max_ps(a.lo, a.hi);
    const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
  }
  static F32x16 swap_pairs(const F32x16& a) {
    return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
  }
  static F32x16 doubled(__m256 a) {
    const __m256i front = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const __m256i back = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    return {_mm256_permutevar8x32_ps(a, front), _mm256_permutevar8x32_ps(a, back)};
  }
  static F32x16 load_pairs(const float* p) { return doubled(_mm256_loadu_ps(p)); }
  static F32x16 load_pairs_first(const float* p, std::size_t pairs) {
    return doubled(_mm256_maskload_ps(p, first(pairs).lo));
  }
  static F32x16 negate_even(const F32x16& a) {
    const __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000ll));
    return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
  }

  // --- half precision ---
  static __m128i load_16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static float half_to_float(std::uint32_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(half))));
  }
  static F32x16 load_f16(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(load_16(p)), _mm256_cvtph_ps(load_16(p + 8))};
  }
  static F32x16 load_f16_first(const std::uint16_t* p, std::size_t lanes) {
    std::uint16_t padded[16] = {};
    std::memcpy(padded, p, lanes * sizeof padded[0]);
    return load_f16(padded);
  }
  static F32x16 load_bf16(const std::uint16_t* p) {
    return from_bits(
        shl_i<16>({_mm256_cvtepu16_epi32(load_16(p)), _mm256_cvtepu16_epi32(load_16(p + 8))}));
  }
  static F32x16 load_bf16_first(const std::uint16_t* p, std::size_t lanes) {
    std::uint16_t padded[16] = {};
    std::memcpy(padded, p, lanes * sizeof padded[0]);
    return load_bf16(padded);
  }
  static void store_f16(std::uint16_t* p, const F32x16& a) {
    auto* to = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(to, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(to + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_f16_first(std::uint16_t* p, const F32x16& a, std::size_t lanes) {
    std::uint16_t half[16];
    store_f16(half, a);
    std::memcpy(p, half, lanes * sizeof half[0]);
  }

  // --- 32-bit integers, wrapping ---
  static I32x16 zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static I32x16 set1_i(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static I32x16 load_i(const std::int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
  }
  static I32x16 load_first_i(const std::int32_t* p, std::size_t lanes) {
    const I32x16 m = first(lanes);
    return {_mm256_maskload_epi32(p, m.lo), _mm256_maskload_epi32(p + 8, m.hi)};
  }
  static void store_i(std::int32_t* p, const I32x16& a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
  }
  static void store_first_i(std::int32_t* p, const I32x16& a, std::size_t lanes) {
    const I32x16 m = first(lanes);
    _mm256_maskstore_epi32(p, m.lo, a.lo);
    _mm256_maskstore_epi32(p + 8, m.hi, a.hi);
  }
  static I32x16 add_i(const I32x16& a, const I32x16& b) {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
  }
  static I32x16 sub_i(const I32x16& a, const I32x16& b) {
    return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
  }
  static I32x16 mul_i(const I32x16& a, const I32x16& b) {
    return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
  }
  static I32x16 and_i(const I32x16& a, const I32x16& b) {
    return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
  }
  static I32x16 or_i(const I32x16& a, const I32x16& b) {
    return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
  }
  static I32x16 xor_i(const I32x16& a, const I32x16& b) {
    return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
  }
  template <int n>
  static I32x16 shl_i(const I32x16& a) {
    return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
  }
  template <int n>
  static I32x16 shr_i(const I32x16& a) {
    return {_mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n)};
  }
  template <int n>
  static I32x16 sra_i(const I32x16& a) {
    return {_mm256_srai_epi32(a.lo, n), _mm256_srai_epi32(a.hi, n)};
  }
  static I32x16 max_i(const I32x16& a, const I32x16& b) {
    return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
  }
  static std::int32_t sum_i(const I32x16& a) {
    const __m256i by8 = _mm256_add_epi32(a.lo, a.hi);
    const __m128i by4 =
        _mm_add_epi32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
    const __m128i by2 = _mm_add_epi32(by4, _mm_shuffle_epi32(by4, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(by2, _mm_shuffle_epi32(by2, 0xb1)));
  }
  static std::int32_t tree_max_i(const I32x16& a) {
    const __m256i by8 = _mm256_max_epi32(a.lo, a.hi);
    const __m128i by4 =
        _mm_max_epi32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
    const __m128i by2 = _mm_max_epi32(by4, _mm_shuffle_epi32(by4, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(by2, _mm_shuffle_epi32(by2, 0xb1)));
  }
  static Mask16 equal_i(const I32x16& a, const I32x16& b) {
    return {_mm256_cmpeq_epi32(a.lo, b.lo), _mm256_cmpeq_epi32(a.hi, b.hi)};
  }
  static Mask16 less_i(const I32x16& a, const I32x16& b) {
    return {_mm256_cmpgt_epi32(b.lo, a.lo), _mm256_cmpgt_epi32(b.hi, a.hi)};
  }
  static I32x16 select_i(const Mask16& m, const I32x16& a, const I32x16& b) {
    return {_mm256_blendv_epi8(b.lo, a.lo, m.lo), _mm256_blendv_epi8(b.hi, a.hi, m.hi)};
  }

  // --- conversions ---
  static F32x16 to_f32(const I32x16& a) {
    return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
  }
  static I32x16 to_i32(const F32x16& a) {
    return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
  }
  static I32x16 bits(const F32x16& a) {
    return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
  }
  static F32x16 from_bits(const I32x16& a) {
    return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
  }

  // --- 16 bytes ---
  static B16 load_b16(const std::byte* p) { return load_16(p); }
  static B16 low_nibbles(B16 a) { return _mm_and_si128(a, _mm_set1_epi8(15)); }
  static B16 high_nibbles(B16 a) { return low_nibbles(_mm_srli_epi16(a, 4)); }
  static B16 lookup16(B16 table, B16 codes) { return _mm_shuffle_epi8(table, codes); }
  static B16 bit_of_byte() { return _mm_set1_epi64x(static_cast<long long>(0x8040201008040201u)); }
  template <int byte>
  static B16 bytes_twice() {  // indices: `byte` eight times, then the next one
    return _mm_set_epi64x(0x0101010101010101ll * (byte + 1), 0x0101010101010101ll * byte);
  }
  template <int byte>
  static B16 add_where_bits(B16 a, B16 b, std::uint8_t value) {
    const B16 bit = bit_of_byte();
    const B16 set = _mm_and_si128(_mm_shuffle_epi8(b, bytes_twice<byte>()), bit);
    return _mm_add_epi8(
        a, _mm_and_si128(_mm_cmpeq_epi8(set, bit), _mm_set1_epi8(static_cast<char>(value))));
  }
  static B16 low_halves(B16 a, B16 b) { return _mm_unpacklo_epi64(a, b); }
  static B16 high_halves(B16 a, B16 b) { return _mm_unpackhi_epi64(a, b); }
  static I32x16 u8_to_i32(B16 a) {
    return {_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(a, a))};
  }
  static F32x16 i8_to_f32(B16 a) {
    return to_f32({_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(a, a))});
  }
  static void store_i8(std::int8_t* p, const I32x16& a) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }

  // --- 64 bytes, in four lanes of 16 ---
  static B64 load_b64(const void* p) {
    const auto* from = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
  }
  static __m256i two_lanes(const std::byte* first, const std::byte* second) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(first)), load_16(second), 1);
  }
  template <std::size_t stride>
  static B64 load_quad(const std::byte* p) {
    return {two_lanes(p, p + stride), two_lanes(p + 2 * stride, p + 3 * stride)};
  }
  static B64 low_nibbles(const B64& a) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
  }
  static B64 high_nibbles(const B64& a) {
    return low_nibbles(B64{_mm256_srli_epi16(a.lo, 4), _mm256_srli_epi16(a.hi, 4)});
  }
  static B64 flip_sign(const B64& a) {
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(-128));
    return {_mm256_xor_si256(a.lo, sign), _mm256_xor_si256(a.hi, sign)};
  }
  static B64 table_b64(B16 a) {
    return {_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(a)};
  }
  static B64 lookup16(const B64& table, const B64& codes) {
    return {_mm256_shuffle_epi8(table.lo, codes.lo), _mm256_shuffle_epi8(table.hi, codes.hi)};
  }
  template <int byte>
  static __m256i add_where_bits_half(__m256i a, __m256i b, std::uint8_t value) {
    const __m256i bit = _mm256_broadcastsi128_si256(bit_of_byte());
    const __m256i spread = _mm256_broadcastsi128_si256(bytes_twice<byte>());
    const __m256i set = _mm256_and_si256(_mm256_shuffle_epi8(b, spread), bit);
    return _mm256_add_epi8(a, _mm256_and_si256(_mm256_cmpeq_epi8(set, bit),
                                               _mm256_set1_epi8(static_cast<char>(value))));
  }
  template <int byte>
  static B64 add_where_bits(const B64& a, const B64& b, std::uint8_t value) {
    return {add_where_bits_half<byte>(a.lo, b.lo, value),
            add_where_bits_half<byte>(a.hi, b.hi, value)};
  }
  static __m256i dot_u_half(__m256i u_lo, __m256i a_lo, __m256i u_hi, __m256i a_hi) {
    const __m256i pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(u_lo, a_lo), _mm256_maddubs_epi16(u_hi, a_hi));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
  static I32x16 dot_u(const B64& u_lo, const B64& a_lo, const B64& u_hi, const B64& a_hi) {
    return {dot_u_half(u_lo.lo, a_lo.lo, u_hi.lo, a_hi.lo),
            dot_u_half(u_lo.hi, a_lo.hi, u_hi.hi, a_hi.hi)};
  }
  static constexpr std::int32_t signed_bias = 0;
  // |w| times a with w's sign; pairs cannot saturate as |w| <= 128 and |a| <= 127.
  static __m256i dot_i_half(__m256i w, __m256i a) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
  static I32x16 dot_i(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return {_mm256_add_epi32(dot_i_half(w_lo.lo, a_lo.lo), dot_i_half(w_hi.lo, a_hi.lo)),
            _mm256_add_epi32(dot_i_half(w_lo.hi, a_lo.hi), dot_i_half(w_hi.hi, a_hi.hi))};
  }

  static B64 low_halves(const B64& a, const B64& b) {
    return {_mm256_unpacklo_epi64(a.lo, b.lo), _mm256_unpacklo_epi64(a.hi, b.hi)};
  }
  static B64 high_halves(const B64& a, const B64& b) {
    return {_mm256_unpackhi_epi64(a.lo, b.lo), _mm256_unpackhi_epi64(a.hi, b.hi)};
  }
  static void transpose_bytes_half(__m256i& a, __m256i& b, __m256i& c, __m256i& d) {
    const __m256i ab_low = _mm256_unpacklo_epi8(a, b);
    const __m256i ab_high = _mm256_unpackhi_epi8(a, b);
    const __m256i cd_low = _mm256_unpacklo_epi8(c, d);
    const __m256i cd_high = _mm256_unpackhi_epi8(c, d);
    a = _mm256_unpacklo_epi16(ab_low, cd_low);
    b = _mm256_unpackhi_epi16(ab_low, cd_low);
    c = _mm256_unpacklo_epi16(ab_high, cd_high);
    d = _mm256_unpackhi_epi16(ab_high, cd_high);
  }
  static void transpose_bytes(B64 (&v)[4]) {
    transpose_bytes_half(v[0].lo, v[1].lo, v[2].lo, v[3].lo);
    transpose_bytes_half(v[0].hi, v[1].hi, v[2].hi, v[3].hi);
  }
  static B64 spread4(const std::int8_t* p) {
    std::int32_t word;
    std::memcpy(&word, p, sizeof word);
    return {_mm256_set1_epi32(word), _mm256_set1_epi32(word)};
  }
  static B64 magnitudes(const B64& a) { return {_mm256_abs_epi8(a.lo), _mm256_abs_epi8(a.hi)}; }
  static __m256i dot_small_half(__m256i w, __m256i a, __m256i abs_a) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(abs_a, _mm256_sign_epi8(w, a)),
                             _mm256_set1_epi16(1));
  }
  static I32x16 dot_small(const B64& w, const B64& a, const B64& abs_a) {
    return {dot_small_half(w.lo, a.lo, abs_a.lo), dot_small_half(w.hi, a.hi, abs_a.hi)};
  }
  static I32x16 dot_biased(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return dot_i(w_lo, a_lo, w_hi, a_hi);
  }

  // --- groups of 16 blocks ---
  struct Q8Group {
    B64 lo[4];
    B64 hi[4];
  };
  static Q8Group load_group(const std::int8_t* q) {
    const auto* bytes = reinterpret_cast<const std::byte*>(q);
    Q8Group out;
    for (int quad = 0; quad < 4; ++quad) {
      out.lo[quad] = load_quad<32>(bytes + 128 * quad);
      out.hi[quad] = load_quad<32>(bytes + 128 * quad + 16);
    }
    return out;
  }
  // a's and b's sums of lanes i and i + 2, interleaved.
  static __m256i fold32(__m256i a, __m256i b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  }
  static __m256i fold64(__m256i a, __m256i b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  }
  static I32x16 reduce_quads(const I32x16 (&p)[4]) {
    return {fold64(fold32(p[0].lo, p[1].lo), fold32(p[2].lo, p[3].lo)),
            fold64(fold32(p[0].hi, p[1].hi), fold32(p[2].hi, p[3].hi))};
  }
  // The same of codes up to `largest`, whose four partial sums fit 16 bits; with the smaller codes
  // so do the two that are left of them.
  template <unsigned largest>
  static __m256i reduce_small(__m256i a, __m256i b, __m256i c, __m256i d) {
    static_assert(largest * 127 * 8 < 32768);
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i ab = _mm256_madd_epi16(_mm256_packs_epi32(a, b), ones);
    const __m256i cd = _mm256_madd_epi16(_mm256_packs_epi32(c, d), ones);
    if constexpr (largest * 127 * 16 < 32768) {
      return _mm256_madd_epi16(_mm256_packs_epi32(ab, cd), ones);
    } else {
      const __m256 x = _mm256_castsi256_ps(ab);
      const __m256 y = _mm256_castsi256_ps(cd);
      return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
                              _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)));
    }
  }
  template <unsigned largest>
  static I32x16 reduce_small_quads(const I32x16 (&p)[4]) {
    return {reduce_small<largest>(p[0].lo, p[1].lo, p[2].lo, p[3].lo),
            reduce_small<largest>(p[0].hi, p[1].hi, p[2].hi, p[3].hi)};
  }
  // The word of each of eight blocks, from windows that begin k words early and so have it at place
  // k: one blend each, where an insertion takes two steps.
  template <std::size_t stride>
  static __m128i gather_words(const std::byte* p, int first) {
    static_assert(stride >= 8);
    const auto window = [p](int block, int k) {
      return load_16(p + static_cast<std::size_t>(block) * stride -
                     static_cast<std::size_t>(2 * k));
    };
    __m128i words = window(first, 0);
    words = _mm_blend_epi16(words, window(first + 4, 1), 1 << 1);
    words = _mm_blend_epi16(words, window(first + 8, 2), 1 << 2);
    words = _mm_blend_epi16(words, window(first + 12, 3), 1 << 3);
    words = _mm_blend_epi16(words, window(first + 1, 4), 1 << 4);
    words = _mm_blend_epi16(words, window(first + 5, 5), 1 << 5);
    words = _mm_blend_epi16(words, window(first + 9, 6), 1 << 6);
    return _mm_blend_epi16(words, window(first + 13, 7), 1 << 7);
  }
  template <std::size_t stride>
  static F32x16 gather_f16(const std::byte* p) {
    return {_mm256_cvtph_ps(gather_words<stride>(p, 0)),
            _mm256_cvtph_ps(gather_words<stride>(p, 2))};
  }
  // 2^(e - 128), subnormal for e < 2, of the first byte e of each of 16 blocks of 17 bytes, in
  // group order. Of the 32 bytes i, byte 2i is that of block 2i, byte 2i + 17 that of the next.
  static F32x16 gather_powers(const std::byte* p) {
    const auto at = [p](int i) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * i));
    };
    __m256i bytes = at(0);
    bytes = _mm256_blend_epi16(bytes, at(1), 1 << 1);
    bytes = _mm256_blend_epi16(bytes, at(2), 1 << 2);
    bytes = _mm256_blend_epi16(bytes, at(3), 1 << 3);
    bytes = _mm256_blend_epi16(bytes, at(4), 1 << 4);
    bytes = _mm256_blend_epi16(bytes, at(5), 1 << 5);
    bytes = _mm256_blend_epi16(bytes, at(6), 1 << 6);
    bytes = _mm256_blend_epi16(bytes, at(7), 1 << 7);
    const __m256i e = _mm256_shuffle_epi8(
        bytes, _mm256_setr_epi8(0, -1, 4, -1, 8, -1, 12, -1, 2, -1, 6, -1, 10, -1, 14, -1,  //
                                1, -1, 5, -1, 9, -1, 13, -1, 3, -1, 7, -1, 11, -1, 15, -1));
    // Upper halves of floats: the larger of two bit patterns, each right on its side.
    const __m256i one = _mm256_set1_epi16(1);
    const __m256i half = _mm256_max_epi16(_mm256_slli_epi16(_mm256_sub_epi16(e, one), 7),
                                          _mm256_slli_epi16(_mm256_add_epi16(e, one), 5));
    const __m256i zero = _mm256_setzero_si256();
    return from_bits({_mm256_unpacklo_epi16(zero, half), _mm256_unpackhi_epi16(zero, half)});
  }
  static F32x16 group_order(const F32x16& a) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return {_mm256_permutevar8x32_ps(_mm256_unpacklo_ps(a.lo, a.hi), order),
            _mm256_permutevar8x32_ps(_mm256_unpackhi_ps(a.lo, a.hi), order)};
  }
  static I32x16 group_order_i(const I32x16& a) { return bits(group_order(from_bits(a))); }
  static F32x16 first_blocks(const F32x16& a, std::size_t n) {
    const I32x16 block = {_mm256_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13),
                          _mm256_setr_epi32(2, 6, 10, 14, 3, 7, 11, 15)};
    return from_bits(and_i(bits(a), less_i(block, set1_i(static_cast<std::int32_t>(n)))));
  }
  // Sums of neighbouring pairs of a's lanes, then of b's, in each half.
  static __m256 pair_up(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
  }
  // Adds lanes two apart: a's, then b's, in each half.
  static __m256 fold_two_apart(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
  }
  // The two halves of a's sum and of b's, added.
  static __m256 fold_halves(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  // Lane 4j + q has block 4q + j, so blocks 8, 4, 2 and 1 apart are lanes 2, 1, 8 and 4 apart.
  template <std::size_t together>
  static void group_sums(const F32x16 (&v)[4], float* out) {
    if constexpr (together == 1) {
      const auto by4 = [](__m256 a, __m256 b, __m256 c, __m256 d) {
        return pair_up(fold_two_apart(a, b), fold_two_apart(c, d));
      };
      const __m256 by2 = _mm256_add_ps(by4(v[0].lo, v[1].lo, v[2].lo, v[3].lo),
                                       by4(v[0].hi, v[1].hi, v[2].hi, v[3].hi));
      _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(by2), _mm256_extractf128_ps(by2, 1)));
    } else if constexpr (together == 2) {
      const auto by2 = [](const F32x16& a, const F32x16& b) {
        return _mm256_add_ps(pair_up(a.lo, b.lo), pair_up(a.hi, b.hi));
      };
      _mm256_storeu_ps(out, fold_halves(by2(v[0], v[1]), by2(v[2], v[3])));
    } else {
      static_assert(together == 4);
      for (int i = 0; i < 4; i += 2)
        _mm256_storeu_ps(out + 8 * i / 2, fold_halves(_mm256_add_ps(v[i].lo, v[i].hi),
                                                      _mm256_add_ps(v[i + 1].lo, v[i + 1].hi)));
    }
  }

  // --- exp and attention ---
  static F32x16 scale_by_power(const F32x16& x, const F32x16& power) {
    const I32x16 n = to_i32(power);
    const I32x16 half = sra_i<1>(n);
    const auto two_to = [](const I32x16& e) { return from_bits(shl_i<23>(add_i(e, set1_i(127)))); };
    return mul(mul(x, two_to(half)), two_to(sub_i(n, half)));  // the first product is exact
  }
  static constexpr std::size_t attention_tile = 4;
  static constexpr std::size_t attention_heads = 2;
  // Each step adds the two halves of what is left of two vectors, in tree_sum's order.
  static __m256 fold_lanes(const F32x16& a, const F32x16& b) {
    const __m256 first = _mm256_add_ps(a.lo, a.hi);
    const __m256 second = _mm256_add_ps(b.lo, b.hi);
    return _mm256_add_ps(_mm256_permute2f128_ps(first, second, 0x20),
                         _mm256_permute2f128_ps(first, second, 0x31));
  }
  static void tree_sums(const F32x16 (&v)[attention_tile], float* out) {
    const __m256 front = fold_lanes(v[0], v[1]);
    const __m256 back = fold_lanes(v[2], v[3]);
    const __m256 by2 =
        _mm256_add_ps(_mm256_shuffle_ps(front, back, 0x44), _mm256_shuffle_ps(front, back, 0xee));
    const __m256 sums =  // lanes: v0 v2, then v1 v3
        _mm256_add_ps(_mm256_shuffle_ps(by2, by2, 0x88), _mm256_shuffle_ps(by2, by2, 0xdd));
    _mm_storeu_ps(out,
                  _mm_unpacklo_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
  }

  // --- memory ---
  // Always inline: a function that only prefetches looks pure, and GCC drops calls to it.
  [[gnu::always_inline]] static void prefetch(const std::byte* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
  static std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
    __m256i sum[4] = {};
    std::size_t at = 0;
    for (; at + 128 <= bytes; at += 128) {
      const B64 front = load_b64(data + at);
      const B64 back = load_b64(data + at + 64);
      sum[0] = _mm256_add_epi64(sum[0], front.lo);
      sum[1] = _mm256_add_epi64(sum[1], front.hi);
      sum[2] = _mm256_add_epi64(sum[2], back.lo);
      sum[3] = _mm256_add_epi64(sum[3], back.hi);
    }
    alignas(32) std::uint64_t part[4];
    _mm256_store_si256(
        reinterpret_cast<__m256i*>(part),
        _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3])));
    std::uint64_t total = part[0] + part[1] + part[2] + part[3];
    for (; at < bytes; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, data + at, sizeof word);
      total += word;
    }
    return total;
  }
};

}  // namespace
}  // namespace millrace
