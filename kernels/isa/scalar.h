// The ISA policy in plain C++, and the definition of every operation: the other policies give the
// same bits (list with meanings: kernels/isa/README.md). Included by table_scalar.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

struct Scalar {
  static constexpr const char* name = "scalar";
  static constexpr std::size_t matvec_rows = 2;  // rows at once for one token
  static constexpr std::size_t tile_rows = 2;    // register tile for several tokens

  static constexpr std::size_t tile_tokens = 2;

  struct F32x16 {
    float v[16];
  };
  struct I32x16 {
    std::int32_t v[16];
  };
  struct Mask16 {
    bool v[16];
  };
  struct B16 {
    std::uint8_t v[16];
  };
  struct B64 {
    std::uint8_t v[64];
  };

  template <class Function>
  [[gnu::always_inline]] static F32x16 map(Function function) {
    F32x16 out;
    for (int i = 0; i < 16; ++i) out.v[i] = function(i);
    return out;
  }
  template <class Function>
  [[gnu::always_inline]] static I32x16 map_i(Function function) {
    I32x16 out;
    for (int i = 0; i < 16; ++i) out.v[i] = static_cast<std::int32_t>(function(i));
    return out;
  }
  template <class Function>
  [[gnu::always_inline]] static Mask16 map_m(Function function) {
    Mask16 out;
    for (int i = 0; i < 16; ++i) out.v[i] = function(i);
    return out;
  }
  static std::uint32_t u32(std::int32_t x) { return static_cast<std::uint32_t>(x); }

  // --- float ---
  static F32x16 zero() { return F32x16{}; }
  static F32x16 set1(float x) {
    return map([&](int) { return x; });
  }
  static F32x16 load(const float* p) {
    F32x16 out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
  }
  static F32x16 load_first(const float* p, std::size_t lanes) {
    F32x16 out{};
    std::memcpy(out.v, p, lanes * sizeof(float));
    return out;
  }
  static void store(float* p, const F32x16& a) { std::memcpy(p, a.v, sizeof a.v); }
  static void store_first(float* p, const F32x16& a, std::size_t lanes) {
    std::memcpy(p, a.v, lanes * sizeof(float));
  }
  static F32x16 add(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F32x16 sub(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F32x16 mul(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F32x16 div(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F32x16 sqrt(const F32x16& a) {
    return map([&](int i) { return __builtin_sqrtf(a.v[i]); });
  }
  static F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
    return map([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  static F32x16 min(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F32x16 max(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Mask16 less(const F32x16& a, const F32x16& b) {
    return map_m([&](int i) { return a.v[i] < b.v[i]; });
  }
  static Mask16 equal(const F32x16& a, const F32x16& b) {
    return map_m([&](int i) { return a.v[i] == b.v[i]; });
  }
  static F32x16 select(const Mask16& m, const F32x16& a, const F32x16& b) {
    return map([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; });
  }
  static bool any(const Mask16& m) {
    bool found = false;
    for (int i = 0; i < 16; ++i) found |= m.v[i];
    return found;
  }
  static bool all(const Mask16& m) {
    bool held = true;
    for (int i = 0; i < 16; ++i) held &= m.v[i];
    return held;
  }
  static float tree_sum(F32x16 a) {
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
    return a.v[0];
  }
  static float tree_max(F32x16 a) {
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
    return a.v[0];
  }
  static F32x16 swap_pairs(const F32x16& a) {
    return map([&](int i) { return a.v[i ^ 1]; });
  }
  static F32x16 load_pairs(const float* p) {
    return map([&](int i) { return p[i / 2]; });
  }
  static F32x16 load_pairs_first(const float* p, std::size_t pairs) {
    return map([&](int i) { return static_cast<std::size_t>(i / 2) < pairs ? p[i / 2] : 0.0f; });
  }
  static F32x16 negate_even(const F32x16& a) {
    return map([&](int i) { return i % 2 == 0 ? -a.v[i] : a.v[i]; });
  }

  // --- half precision ---
  static float half_to_float(std::uint32_t h) {
    const std::uint32_t sign = (h & 0x8000u) << 16;
    const std::uint32_t exponent = (h >> 10) & 31u;
    const std::uint32_t mantissa = h & 0x3ffu;
    if (exponent == 31) {  // infinity; a NaN turns quiet, as the hardware does it
      const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
      return float_of(sign | 0x7f800000u | quiet | mantissa << 13);
    }
    if (exponent == 0) {
      const float magnitude = static_cast<float>(static_cast<std::int32_t>(mantissa)) * 0x1p-24f;
      return sign != 0 ? -magnitude : magnitude;
    }
    return float_of(sign | (exponent + 112u) << 23 | mantissa << 13);
  }
  static std::uint16_t float_to_half(float x) {
    const std::uint32_t all_bits = bits_of(x);
    const std::uint32_t sign = all_bits >> 16 & 0x8000u;
    const std::uint32_t a = all_bits & 0x7fffffffu;
    std::uint32_t half;
    if (a > 0x7f800000u) {
      half = 0x7e00u | (a >> 13 & 0x3ffu);
    } else if (a >= 0x477ff000u) {  // 65520: rounds to infinity
      half = 0x7c00u;
    } else if (a < 0x38800000u) {  // below 2^-14: the addition rounds to a multiple of 2^-24
      half = bits_of(float_of(a) + 0.5f) - 0x3f000000u;
    } else {
      half = (a + 0xfffu + (a >> 13 & 1u) - (112u << 23)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
  }
  static F32x16 load_f16(const std::uint16_t* p) { return load_f16_first(p, 16); }
  static F32x16 load_f16_first(const std::uint16_t* p, std::size_t lanes) {
    std::uint16_t half[16] = {};
    std::memcpy(half, p, lanes * sizeof half[0]);
    return map([&](int i) { return half_to_float(half[i]); });
  }
  static F32x16 load_bf16(const std::uint16_t* p) { return load_bf16_first(p, 16); }
  static F32x16 load_bf16_first(const std::uint16_t* p, std::size_t lanes) {
    std::uint16_t half[16] = {};
    std::memcpy(half, p, lanes * sizeof half[0]);
    return map([&](int i) { return float_of(static_cast<std::uint32_t>(half[i]) << 16); });
  }
  static void store_f16(std::uint16_t* p, const F32x16& a) { store_f16_first(p, a, 16); }
  static void store_f16_first(std::uint16_t* p, const F32x16& a, std::size_t lanes) {
    std::uint16_t half[16];
    for (int i = 0; i < 16; ++i) half[i] = float_to_half(a.v[i]);
    std::memcpy(p, half, lanes * sizeof half[0]);
  }

  // --- 32-bit integers, wrapping ---
  static I32x16 zero_i() { return I32x16{}; }
  static I32x16 set1_i(std::int32_t x) {
    return map_i([&](int) { return x; });
  }
  static I32x16 load_i(const std::int32_t* p) { return load_first_i(p, 16); }
  static I32x16 load_first_i(const std::int32_t* p, std::size_t lanes) {
    I32x16 out{};
    std::memcpy(out.v, p, lanes * sizeof(std::int32_t));
    return out;
  }
  static void store_i(std::int32_t* p, const I32x16& a) { std::memcpy(p, a.v, sizeof a.v); }
  static void store_first_i(std::int32_t* p, const I32x16& a, std::size_t lanes) {
    std::memcpy(p, a.v, lanes * sizeof(std::int32_t));
  }
  static I32x16 add_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return u32(a.v[i]) + u32(b.v[i]); });
  }
  static I32x16 sub_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return u32(a.v[i]) - u32(b.v[i]); });
  }
  static I32x16 mul_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return u32(a.v[i]) * u32(b.v[i]); });
  }
  static I32x16 and_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return a.v[i] & b.v[i]; });
  }
  static I32x16 or_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return a.v[i] | b.v[i]; });
  }
  static I32x16 xor_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return a.v[i] ^ b.v[i]; });
  }
  template <int n>
  static I32x16 shl_i(const I32x16& a) {
    return map_i([&](int i) { return u32(a.v[i]) << n; });
  }
  template <int n>
  static I32x16 shr_i(const I32x16& a) {
    return map_i([&](int i) { return u32(a.v[i]) >> n; });
  }
  template <int n>
  static I32x16 sra_i(const I32x16& a) {
    return map_i([&](int i) { return a.v[i] >> n; });
  }
  static I32x16 max_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static std::int32_t sum_i(const I32x16& a) {
    std::uint32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += u32(a.v[i]);
    return static_cast<std::int32_t>(sum);
  }
  static std::int32_t tree_max_i(const I32x16& a) {
    std::int32_t most = a.v[0];
    for (int i = 1; i < 16; ++i) most = a.v[i] > most ? a.v[i] : most;
    return most;
  }
  static Mask16 equal_i(const I32x16& a, const I32x16& b) {
    return map_m([&](int i) { return a.v[i] == b.v[i]; });
  }
  static Mask16 less_i(const I32x16& a, const I32x16& b) {
    return map_m([&](int i) { return a.v[i] < b.v[i]; });
  }
  static I32x16 select_i(const Mask16& m, const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; });
  }

  // --- conversions ---
  static F32x16 to_f32(const I32x16& a) {
    return map([&](int i) { return static_cast<float>(a.v[i]); });
  }
  static I32x16 to_i32(const F32x16& a) {
    return map_i([&](int i) { return __builtin_lrintf(a.v[i]); });
  }
  static std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
  static float float_of(std::uint32_t x) { return __builtin_bit_cast(float, x); }
  static I32x16 bits(const F32x16& a) { return __builtin_bit_cast(I32x16, a); }
  static F32x16 from_bits(const I32x16& a) { return __builtin_bit_cast(F32x16, a); }

  // --- 16 bytes ---
  static B16 load_b16(const std::byte* p) {
    B16 out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
  }
  template <class Function>
  [[gnu::always_inline]] static B16 map_b16(Function function) {
    B16 out;
    for (int i = 0; i < 16; ++i) out.v[i] = static_cast<std::uint8_t>(function(i));
    return out;
  }
  static B16 low_nibbles(const B16& a) {
    return map_b16([&](int i) { return a.v[i] & 15; });
  }
  static B16 high_nibbles(const B16& a) {
    return map_b16([&](int i) { return a.v[i] >> 4; });
  }
  static B16 lookup16(const B16& table, const B16& codes) {
    return map_b16([&](int i) { return table.v[codes.v[i]]; });
  }
  template <int byte>
  static B16 add_where_bits(const B16& a, const B16& b, std::uint8_t value) {
    return map_b16(
        [&](int i) { return a.v[i] + ((b.v[byte + i / 8] >> i % 8 & 1) != 0 ? value : 0); });
  }
  static B16 low_halves(const B16& a, const B16& b) {
    return map_b16([&](int i) { return i < 8 ? a.v[i] : b.v[i - 8]; });
  }
  static B16 high_halves(const B16& a, const B16& b) {
    return map_b16([&](int i) { return i < 8 ? a.v[i + 8] : b.v[i]; });
  }
  static I32x16 u8_to_i32(const B16& a) {
    return map_i([&](int i) { return a.v[i]; });
  }
  static F32x16 i8_to_f32(const B16& a) {
    return map([&](int i) { return static_cast<float>(i8(a.v[i])); });
  }
  static void store_i8(std::int8_t* p, const I32x16& a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(a.v[i]);
  }

  // --- 64 bytes, in four lanes of 16 ---
  static B64 load_b64(const void* p) {
    B64 out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
  }
  template <std::size_t stride>
  static B64 load_quad(const std::byte* p) {
    B64 out;
    for (std::size_t j = 0; j < 4; ++j) std::memcpy(out.v + 16 * j, p + stride * j, 16);
    return out;
  }
  template <class Function>
  [[gnu::always_inline]] static B64 map_b(Function function) {
    B64 out;
    for (int i = 0; i < 64; ++i) out.v[i] = static_cast<std::uint8_t>(function(i));
    return out;
  }
  static B64 low_nibbles(const B64& a) {
    return map_b([&](int i) { return a.v[i] & 15; });
  }
  static B64 high_nibbles(const B64& a) {
    return map_b([&](int i) { return a.v[i] >> 4; });
  }
  static B64 flip_sign(const B64& a) {
    return map_b([&](int i) { return a.v[i] ^ 0x80; });
  }
  static B64 table_b64(const B16& a) {
    return map_b([&](int i) { return a.v[i % 16]; });
  }
  static B64 lookup16(const B64& table, const B64& codes) {
    return map_b([&](int i) { return table.v[i / 16 * 16 + codes.v[i]]; });
  }
  template <int byte>
  static B64 add_where_bits(const B64& a, const B64& b, std::uint8_t value) {
    return map_b([&](int i) {
      const int lane = i / 16 * 16;
      const int source = b.v[lane + byte + i % 16 / 8];
      return a.v[i] + ((source >> i % 8 & 1) != 0 ? value : 0);
    });
  }
  static std::int32_t i8(std::uint8_t x) { return static_cast<std::int8_t>(x); }
  static I32x16 dot_u(const B64& u_lo, const B64& a_lo, const B64& u_hi, const B64& a_hi) {
    return map_i([&](int lane) {
      std::int32_t sum = 0;
      for (int i = 4 * lane; i < 4 * lane + 4; ++i)
        sum += u_lo.v[i] * i8(a_lo.v[i]) + u_hi.v[i] * i8(a_hi.v[i]);
      return sum;
    });
  }
  static constexpr std::int32_t signed_bias = 0;
  static I32x16 dot_i(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return map_i([&](int lane) {
      std::int32_t sum = 0;
      for (int i = 4 * lane; i < 4 * lane + 4; ++i)
        sum += i8(w_lo.v[i]) * i8(a_lo.v[i]) + i8(w_hi.v[i]) * i8(a_hi.v[i]);
      return sum;
    });
  }
  static B64 low_halves(const B64& a, const B64& b) {
    return map_b([&](int i) { return i % 16 < 8 ? a.v[i] : b.v[i - 8]; });
  }
  static B64 high_halves(const B64& a, const B64& b) {
    return map_b([&](int i) { return i % 16 < 8 ? a.v[i + 8] : b.v[i]; });
  }
  // Byte 4k + m of lane j of v[d] becomes byte 4m + d of lane j of v[k].
  static void transpose_bytes(B64 (&v)[4]) {
    B64 out[4];
    for (int k = 0; k < 4; ++k)
      out[k] = map_b([&](int i) { return v[i % 4].v[i / 16 * 16 + 4 * k + i % 16 / 4]; });
    for (int k = 0; k < 4; ++k) v[k] = out[k];
  }
  static B64 spread4(const std::int8_t* p) {
    return map_b([&](int i) { return p[i % 4]; });
  }
  static B64 magnitudes(const B64& a) {
    return map_b([&](int i) { return i8(a.v[i]) < 0 ? -i8(a.v[i]) : i8(a.v[i]); });
  }
  static I32x16 dot_small(const B64& w, const B64& a, const B64&) {
    return dot_i(w, a, B64{}, B64{});
  }
  static I32x16 dot_biased(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return dot_i(w_lo, a_lo, w_hi, a_hi);
  }
  // --- groups of 16 blocks of 32 values; lane 4j + q of a vector in group order is block 4q + j
  // ---
  struct Q8Group {
    B64 lo[4];  // quad q: the first 16 values of blocks 4q .. 4q + 3
    B64 hi[4];  // and the last 16
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
  // Sum of each four lanes: lanes 4j..4j+3 of p[q] go to lane 4j + q, that is group order.
  static I32x16 reduce_quads(const I32x16 (&p)[4]) {
    return map_i([&](int lane) {
      const std::int32_t* v = p[lane % 4].v + lane / 4 * 4;
      return v[0] + v[1] + v[2] + v[3];
    });
  }
  // The unsigned byte (little-endian 16-bit word) at p + b * stride for blocks b, in group order.
  template <std::size_t stride>
  static I32x16 gather_u8(const std::byte* p) {
    return map_i([&](int lane) {
      const auto block = static_cast<std::size_t>(lane % 4 * 4 + lane / 4);
      return std::to_integer<std::int32_t>(p[block * stride]);
    });
  }
  template <std::size_t stride>
  static F32x16 gather_f16(const std::byte* p) {
    return map([&](int lane) {
      const auto block = static_cast<std::size_t>(lane % 4 * 4 + lane / 4);
      std::uint16_t half;
      std::memcpy(&half, p + block * stride, sizeof half);
      return half_to_float(half);
    });
  }
  // Both directions are the same 4 x 4 transposition.
  static F32x16 group_order(const F32x16& a) {
    return map([&](int lane) { return a.v[lane % 4 * 4 + lane / 4]; });
  }
  static I32x16 group_order_i(const I32x16& a) {
    return map_i([&](int lane) { return a.v[lane % 4 * 4 + lane / 4]; });
  }
  // Keeps blocks below n (in group order), the others become +0.
  static F32x16 first_blocks(const F32x16& a, std::size_t n) {
    return map([&](int lane) {
      return static_cast<std::size_t>(lane % 4 * 4 + lane / 4) < n ? a.v[lane] : 0.0f;
    });
  }

  // --- exp and attention ---
  // x * 2^power, rounded once (also to denormals and infinity). power: a whole number in -150..129.
  static F32x16 scale_by_power(const F32x16& x, const F32x16& power) {
    const I32x16 n = to_i32(power);
    const I32x16 half = sra_i<1>(n);
    const auto two_to = [](const I32x16& e) { return from_bits(shl_i<23>(add_i(e, set1_i(127)))); };
    return mul(mul(x, two_to(half)), two_to(sub_i(n, half)));  // the first product is exact
  }
  static constexpr std::size_t attention_tile = 4;   // accumulators at once
  static constexpr std::size_t attention_heads = 2;  // heads among them: a power of two
  static void tree_sums(const F32x16 (&v)[attention_tile], float* out) {
    for (std::size_t i = 0; i < attention_tile; ++i) out[i] = tree_sum(v[i]);
  }

  // --- memory ---
  // Always inline: a function that only prefetches looks pure, and GCC drops calls to it.
  [[gnu::always_inline]] static void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 2); }
  static std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
    std::uint64_t sum[4] = {};
    std::size_t at = 0;
    for (; at + 32 <= bytes; at += 32) {
      std::uint64_t word[4];
      std::memcpy(word, data + at, sizeof word);
      for (int i = 0; i < 4; ++i) sum[i] += word[i];
    }
    for (; at + 8 <= bytes; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, data + at, sizeof word);
      sum[0] += word;
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
  }
};

}  // namespace
}  // namespace millrace
