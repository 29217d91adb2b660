// AVX-512 F, BW, VL, DQ: 16 lanes are one register. Meanings: kernels/isa/README.md. Included by
// the tables of AVX-512 and its extensions only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace millrace {
namespace {

// Where the words of gather_f16 lie, for the result's lanes in group order.
template <std::size_t stride, std::size_t per_window>
struct WordOrder {
  std::uint16_t at[32];
  constexpr WordOrder() : at{} {
    for (std::size_t lane = 0; lane < 16; ++lane) {
      const std::size_t block = lane % 4 * 4 + lane / 4;
      at[lane] = static_cast<std::uint16_t>(block / per_window + block % per_window * stride / 2);
    }
  }
};

struct Avx512 {
  static constexpr const char* name = "avx512";
  static constexpr std::size_t matvec_rows = 4;
  static constexpr std::size_t tile_rows = 4;
  static constexpr std::size_t tile_tokens = 4;

  using F32x16 = __m512;
  using I32x16 = __m512i;
  using Mask16 = __mmask16;
  using B16 = __m128i;
  using B64 = __m512i;

  static __mmask16 first(std::size_t lanes) { return static_cast<__mmask16>((1u << lanes) - 1u); }
  static __mmask8 first8(std::size_t lanes) { return static_cast<__mmask8>((1u << lanes) - 1u); }

  // --- float ---
  static F32x16 zero() { return _mm512_setzero_ps(); }
  static F32x16 set1(float x) { return _mm512_set1_ps(x); }
  static F32x16 load(const float* p) { return _mm512_loadu_ps(p); }
  static F32x16 load_first(const float* p, std::size_t lanes) {
    return _mm512_maskz_loadu_ps(first(lanes), p);
  }
  static void store(float* p, F32x16 a) { _mm512_storeu_ps(p, a); }
  static void store_first(float* p, F32x16 a, std::size_t lanes) {
    _mm512_mask_storeu_ps(p, first(lanes), a);
  }
  static F32x16 add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
  static F32x16 sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
  static F32x16 mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
  static F32x16 div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
  static F32x16 sqrt(F32x16 a) { return _mm512_sqrt_ps(a); }
  static F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
  static F32x16 min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }
  static F32x16 max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
  static Mask16 less(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static Mask16 equal(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static F32x16 select(Mask16 m, F32x16 a, F32x16 b) { return _mm512_mask_blend_ps(m, b, a); }
  static bool any(Mask16 m) { return m != 0; }
  static bool all(Mask16 m) { return m == 0xffff; }
  static float tree_sum(F32x16 a) {
    const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }
  static float tree_max(F32x16 a) {
    const __m256 by8 = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
  }
  static F32x16 swap_pairs(F32x16 a) { return _mm512_permute_ps(a, 0xb1); }
  static F32x16 doubled(__m256 a) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, _mm512_zextps256_ps512(a));
  }
  static F32x16 load_pairs(const float* p) { return doubled(_mm256_loadu_ps(p)); }
  static F32x16 load_pairs_first(const float* p, std::size_t pairs) {
    return doubled(_mm256_maskz_loadu_ps(first8(pairs), p));
  }
  static F32x16 negate_even(F32x16 a) {
    const __m512i sign = _mm512_set1_epi64(0x80000000ll);
    return from_bits(_mm512_xor_si512(bits(a), sign));
  }

  // --- half precision ---
  static float half_to_float(std::uint32_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(half))));
  }
  static F32x16 from_half(__m256i a) { return _mm512_cvtph_ps(a); }
  static F32x16 load_f16(const std::uint16_t* p) {
    return from_half(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F32x16 load_f16_first(const std::uint16_t* p, std::size_t lanes) {
    return from_half(_mm256_maskz_loadu_epi16(first(lanes), p));
  }
  static F32x16 from_bf16(__m256i a) { return from_bits(shl_i<16>(_mm512_cvtepu16_epi32(a))); }
  static F32x16 load_bf16(const std::uint16_t* p) {
    return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F32x16 load_bf16_first(const std::uint16_t* p, std::size_t lanes) {
    return from_bf16(_mm256_maskz_loadu_epi16(first(lanes), p));
  }
  static __m256i to_half(F32x16 a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT); }
  static void store_f16(std::uint16_t* p, F32x16 a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_half(a));
  }
  static void store_f16_first(std::uint16_t* p, F32x16 a, std::size_t lanes) {
    _mm256_mask_storeu_epi16(p, first(lanes), to_half(a));
  }

  // --- 32-bit integers, wrapping ---
  static I32x16 zero_i() { return _mm512_setzero_si512(); }
  static I32x16 set1_i(std::int32_t x) { return _mm512_set1_epi32(x); }
  static I32x16 load_i(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  static I32x16 load_first_i(const std::int32_t* p, std::size_t lanes) {
    return _mm512_maskz_loadu_epi32(first(lanes), p);
  }
  static void store_i(std::int32_t* p, I32x16 a) { _mm512_storeu_si512(p, a); }
  static void store_first_i(std::int32_t* p, I32x16 a, std::size_t lanes) {
    _mm512_mask_storeu_epi32(p, first(lanes), a);
  }
  static I32x16 add_i(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
  static I32x16 sub_i(I32x16 a, I32x16 b) { return _mm512_sub_epi32(a, b); }
  static I32x16 mul_i(I32x16 a, I32x16 b) { return _mm512_mullo_epi32(a, b); }
  static I32x16 and_i(I32x16 a, I32x16 b) { return _mm512_and_si512(a, b); }
  static I32x16 or_i(I32x16 a, I32x16 b) { return _mm512_or_si512(a, b); }
  static I32x16 xor_i(I32x16 a, I32x16 b) { return _mm512_xor_si512(a, b); }
  template <int n>
  static I32x16 shl_i(I32x16 a) {
    return _mm512_slli_epi32(a, n);
  }
  template <int n>
  static I32x16 shr_i(I32x16 a) {
    return _mm512_srli_epi32(a, n);
  }
  template <int n>
  static I32x16 sra_i(I32x16 a) {
    return _mm512_srai_epi32(a, n);
  }
  static I32x16 max_i(I32x16 a, I32x16 b) { return _mm512_max_epi32(a, b); }
  static std::int32_t sum_i(I32x16 a) {
    const __m256i by8 =
        _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    const __m128i by4 =
        _mm_add_epi32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
    const __m128i by2 = _mm_add_epi32(by4, _mm_shuffle_epi32(by4, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(by2, _mm_shuffle_epi32(by2, 0xb1)));
  }
  static std::int32_t tree_max_i(I32x16 a) {
    const __m256i by8 =
        _mm256_max_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    const __m128i by4 =
        _mm_max_epi32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
    const __m128i by2 = _mm_max_epi32(by4, _mm_shuffle_epi32(by4, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(by2, _mm_shuffle_epi32(by2, 0xb1)));
  }
  static Mask16 equal_i(I32x16 a, I32x16 b) { return _mm512_cmpeq_epi32_mask(a, b); }
  static Mask16 less_i(I32x16 a, I32x16 b) { return _mm512_cmplt_epi32_mask(a, b); }
  static I32x16 select_i(Mask16 m, I32x16 a, I32x16 b) { return _mm512_mask_blend_epi32(m, b, a); }

  // --- conversions ---
  static F32x16 to_f32(I32x16 a) { return _mm512_cvtepi32_ps(a); }
  static I32x16 to_i32(F32x16 a) { return _mm512_cvtps_epi32(a); }
  static I32x16 bits(F32x16 a) { return _mm512_castps_si512(a); }
  static F32x16 from_bits(I32x16 a) { return _mm512_castsi512_ps(a); }

  // --- 16 bytes ---
  static B16 load_b16(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static B16 low_nibbles(B16 a) { return _mm_and_si128(a, _mm_set1_epi8(15)); }
  static B16 high_nibbles(B16 a) { return _mm_and_si128(_mm_srli_epi16(a, 4), _mm_set1_epi8(15)); }
  static B16 lookup16(B16 table, B16 codes) { return _mm_shuffle_epi8(table, codes); }
  static B16 bit_of_byte() { return _mm_set1_epi64x(static_cast<long long>(0x8040201008040201u)); }
  template <int byte>
  static B16 bytes_twice() {  // indices: `byte` eight times, then the next one
    return _mm_set_epi64x(0x0101010101010101ll * (byte + 1), 0x0101010101010101ll * byte);
  }
  template <int byte>
  static B16 add_where_bits(B16 a, B16 b, std::uint8_t value) {
    const __mmask16 set =
        _mm_test_epi8_mask(_mm_shuffle_epi8(b, bytes_twice<byte>()), bit_of_byte());
    return _mm_mask_add_epi8(a, set, a, _mm_set1_epi8(static_cast<char>(value)));
  }
  static B16 low_halves(B16 a, B16 b) { return _mm_unpacklo_epi64(a, b); }
  static B16 high_halves(B16 a, B16 b) { return _mm_unpackhi_epi64(a, b); }
  static I32x16 u8_to_i32(B16 a) { return _mm512_cvtepu8_epi32(a); }
  static F32x16 i8_to_f32(B16 a) { return to_f32(_mm512_cvtepi8_epi32(a)); }
  static void store_i8(std::int8_t* p, I32x16 a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
  }

  // --- 64 bytes, in four lanes of 16 ---
  static B64 load_b64(const void* p) { return _mm512_loadu_si512(p); }
  template <std::size_t stride>
  static B64 load_quad(const std::byte* p) {
    const __m256i front =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load_b16(p)), load_b16(p + stride), 1);
    const __m256i back = _mm256_inserti128_si256(_mm256_castsi128_si256(load_b16(p + 2 * stride)),
                                                 load_b16(p + 3 * stride), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(front), back, 1);
  }
  static B64 low_nibbles(B64 a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
  static B64 high_nibbles(B64 a) {
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15));
  }
  static B64 flip_sign(B64 a) {
    return _mm512_xor_si512(a, _mm512_set1_epi8(static_cast<char>(-128)));
  }
  static B64 table_b64(B16 a) { return _mm512_broadcast_i32x4(a); }
  static B64 lookup16(B64 table, B64 codes) { return _mm512_shuffle_epi8(table, codes); }
  template <int byte>
  static B64 add_where_bits(B64 a, B64 b, std::uint8_t value) {
    const __mmask64 set = _mm512_test_epi8_mask(
        _mm512_shuffle_epi8(b, table_b64(bytes_twice<byte>())), table_b64(bit_of_byte()));
    return _mm512_mask_add_epi8(a, set, a, _mm512_set1_epi8(static_cast<char>(value)));
  }
  static I32x16 dot_u(B64 u_lo, B64 a_lo, B64 u_hi, B64 a_hi) {
    const __m512i pairs =
        _mm512_add_epi16(_mm512_maddubs_epi16(u_lo, a_lo), _mm512_maddubs_epi16(u_hi, a_hi));
    return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  }
  static constexpr std::int32_t signed_bias = 0;
  // |w| times a with w's sign; pairs cannot saturate as |w| <= 128 and |a| <= 127.
  static __m512i signed_pairs(B64 w, B64 a) {
    const __m512i signed_a =
        _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a);
    return _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_a);
  }
  static I32x16 dot_i(B64 w_lo, B64 a_lo, B64 w_hi, B64 a_hi) {
    const __m512i ones = _mm512_set1_epi16(1);
    return _mm512_add_epi32(_mm512_madd_epi16(signed_pairs(w_lo, a_lo), ones),
                            _mm512_madd_epi16(signed_pairs(w_hi, a_hi), ones));
  }

  static B64 low_halves(B64 a, B64 b) { return _mm512_unpacklo_epi64(a, b); }
  static B64 high_halves(B64 a, B64 b) { return _mm512_unpackhi_epi64(a, b); }
  static void transpose_bytes(B64 (&v)[4]) {
    const __m512i front_low = _mm512_unpacklo_epi8(v[0], v[1]);
    const __m512i front_high = _mm512_unpackhi_epi8(v[0], v[1]);
    const __m512i back_low = _mm512_unpacklo_epi8(v[2], v[3]);
    const __m512i back_high = _mm512_unpackhi_epi8(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi16(front_low, back_low);
    v[1] = _mm512_unpackhi_epi16(front_low, back_low);
    v[2] = _mm512_unpacklo_epi16(front_high, back_high);
    v[3] = _mm512_unpackhi_epi16(front_high, back_high);
  }
  static B64 spread4(const std::int8_t* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
  }
  static B64 magnitudes(B64 a) { return _mm512_abs_epi8(a); }
  static B64 with_sign_of(B64 w, B64 a) {
    return _mm512_mask_sub_epi8(w, _mm512_movepi8_mask(a), _mm512_setzero_si512(), w);
  }
  static I32x16 dot_small(B64 w, B64 a, B64 abs_a) {
    return _mm512_madd_epi16(_mm512_maddubs_epi16(abs_a, with_sign_of(w, a)), _mm512_set1_epi16(1));
  }
  static I32x16 dot_biased(B64 w_lo, B64 a_lo, B64 w_hi, B64 a_hi) {
    return dot_i(w_lo, a_lo, w_hi, a_hi);
  }

  // --- groups of 16 blocks ---
  struct Q8Group {
    B64 lo[4];
    B64 hi[4];
  };
  static Q8Group load_group(const std::int8_t* q) {
    Q8Group out;
    for (int quad = 0; quad < 4; ++quad) {
      const __m512i front = load_b64(q + 128 * quad);
      const __m512i back = load_b64(q + 128 * quad + 64);
      out.lo[quad] = _mm512_shuffle_i64x2(front, back, 0x88);
      out.hi[quad] = _mm512_shuffle_i64x2(front, back, 0xdd);
    }
    return out;
  }
  // a's and b's sums of lanes i and i + 2, interleaved.
  static __m512i fold32(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
  static I32x16 reduce_quads(const I32x16 (&p)[4]) {
    const __m512i front = fold32(p[0], p[1]);
    const __m512i back = fold32(p[2], p[3]);
    return _mm512_add_epi32(_mm512_unpacklo_epi64(front, back), _mm512_unpackhi_epi64(front, back));
  }
  // Four windows of 64 bytes, each with four blocks' bytes, are laid over one another, each one
  // byte further to the right, so that they meet in one register without collision.
  template <std::size_t stride>
  static I32x16 gather_u8(const std::byte* p) {
    static_assert(stride == 17, "a window holds four blocks and starts in lane j with block j");
    constexpr std::uint64_t mask = 1ull | 1ull << 17 | 1ull << 34 | 1ull << 51;
    __m512i bytes = load_b64(p);
    bytes = _mm512_mask_loadu_epi8(bytes, mask << 1, p + 4 * stride - 1);
    bytes = _mm512_mask_loadu_epi8(bytes, mask << 2, p + 8 * stride - 2);
    bytes = _mm512_mask_loadu_epi8(bytes, mask << 3, p + 12 * stride - 3);
    // Lane j holds blocks j, 4 + j, 8 + j, 12 + j at bytes j .. j + 3.
    constexpr char no = -1;
    const __m512i spread = _mm512_set_epi8(
        no, no, no, 6, no, no, no, 5, no, no, no, 4, no, no, no, 3, no, no, no, 5, no, no, no, 4,
        no, no, no, 3, no, no, no, 2, no, no, no, 4, no, no, no, 3, no, no, no, 2, no, no, no, 1,
        no, no, no, 3, no, no, no, 2, no, no, no, 1, no, no, no, 0);
    return _mm512_shuffle_epi8(bytes, spread);
  }
  // The same with words: a window holds as many blocks as fit, and one permutation orders them.
  template <std::size_t stride>
  static F32x16 gather_f16(const std::byte* p) {
    static_assert(stride % 2 == 0);
    constexpr std::size_t per_window = stride == 18 ? 4 : 2;  // a power of two
    constexpr std::size_t windows = 16 / per_window;
    static_assert(2 * (windows - 1) + (per_window - 1) * stride + 2 <= 64);
    __m512i words = load_b64(p);
    for (std::size_t w = 1; w < windows; ++w) {
      std::uint32_t mask = 0;
      for (std::size_t i = 0; i < per_window; ++i) mask |= 1u << (w + i * stride / 2);
      words = _mm512_mask_loadu_epi16(words, mask, p + w * (per_window * stride - 2));
    }
    alignas(64) static constexpr auto order = WordOrder<stride, per_window>();
    return from_half(
        _mm512_castsi512_si256(_mm512_permutexvar_epi16(_mm512_load_si512(order.at), words)));
  }
  static __m512i transposed_lanes() {
    return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  }
  static F32x16 group_order(F32x16 a) { return _mm512_permutexvar_ps(transposed_lanes(), a); }
  static I32x16 group_order_i(I32x16 a) { return _mm512_permutexvar_epi32(transposed_lanes(), a); }
  static F32x16 first_blocks(F32x16 a, std::size_t n) {
    const auto count = _mm512_set1_epi32(static_cast<int>(n));
    return _mm512_maskz_mov_ps(less_i(transposed_lanes(), count), a);
  }

  // --- exp and attention ---
  static constexpr bool scales_by_powers = true;  // in one step
  static F32x16 scale_by_power(F32x16 x, F32x16 power) { return _mm512_scalef_ps(x, power); }
  static constexpr std::size_t attention_tile = 16;
  static constexpr std::size_t attention_heads = 4;
  // Each step adds the two halves of what is left of two vectors, in tree_sum's order.
  template <int low, int high>
  static __m512 fold_lanes(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, low), _mm512_shuffle_f32x4(a, b, high));
  }
  template <int low, int high>
  static __m512 fold_floats(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, low), _mm512_shuffle_ps(a, b, high));
  }
  static void tree_sums(const F32x16 (&v)[attention_tile], float* out) {
    __m512 four[4];  // lane j of four[i]: what is left of v[4i + j]
    for (int i = 0; i < 4; ++i) {
      const __m512 front = fold_lanes<0x44, 0xee>(v[4 * i], v[4 * i + 1]);
      const __m512 back = fold_lanes<0x44, 0xee>(v[4 * i + 2], v[4 * i + 3]);
      four[i] = fold_lanes<0x88, 0xdd>(front, back);
    }
    const __m512 front = fold_floats<0x44, 0xee>(four[0], four[1]);
    const __m512 back = fold_floats<0x44, 0xee>(four[2], four[3]);
    store(out, group_order(fold_floats<0x88, 0xdd>(front, back)));
  }

  // Lane 4j + q has block 4q + j, so blocks 8, 4, 2 and 1 apart are lanes 2, 1, 8 and 4 apart.
  template <std::size_t together>
  static void group_sums(const F32x16 (&v)[4], float* out) {
    if constexpr (together == 1) {
      const __m512 front = fold_floats<0x44, 0xee>(v[0], v[1]);
      const __m512 back = fold_floats<0x44, 0xee>(v[2], v[3]);
      const __m512 by4 = fold_floats<0x88, 0xdd>(front, back);  // lane 4j + i: v[i]
      const __m256 by2 = _mm256_add_ps(_mm512_castps512_ps256(by4), _mm512_extractf32x8_ps(by4, 1));
      _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(by2), _mm256_extractf128_ps(by2, 1)));
    } else if constexpr (together == 2) {
      const __m512 by4 = fold_lanes<0x44, 0xee>(fold_floats<0x88, 0xdd>(v[0], v[1]),
                                                fold_floats<0x88, 0xdd>(v[2], v[3]));
      _mm256_storeu_ps(out, _mm512_castps512_ps256(fold_lanes<0x88, 0xdd>(by4, by4)));
    } else {
      static_assert(together == 4);
      store(out, fold_lanes<0x88, 0xdd>(fold_lanes<0x44, 0xee>(v[0], v[1]),
                                        fold_lanes<0x44, 0xee>(v[2], v[3])));
    }
  }

  // --- memory ---
  // Always inline: a function that only prefetches looks pure, and GCC drops calls to it.
  [[gnu::always_inline]] static void prefetch(const std::byte* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
  static std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
    __m512i sum[4] = {zero_i(), zero_i(), zero_i(), zero_i()};
    std::size_t at = 0;
    for (; at + 256 <= bytes; at += 256)
      for (std::size_t i = 0; i < 4; ++i)
        sum[i] = _mm512_add_epi64(sum[i], load_b64(data + at + 64 * i));
    for (; at < bytes; at += 64) {
      const std::size_t words = bytes - at < 64 ? (bytes - at) / 8 : 8;
      sum[0] = _mm512_add_epi64(sum[0], _mm512_maskz_loadu_epi64(first8(words), data + at));
    }
    const __m512i all =
        _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
    alignas(64) std::uint64_t part[8];
    _mm512_store_si512(part, all);
    std::uint64_t total = 0;
    for (const std::uint64_t one : part) total += one;
    return total;
  }
};

}  // namespace
}  // namespace millrace
