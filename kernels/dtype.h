// Element formats of tensors, with the ids that GGUF gives them (spec: ggml type table), and three
// of safetensors checkpoints, which no GGUF file can name. Plain data, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// The value is the id in a GGUF file.
enum class DType : std::uint8_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
  // Scaled types: the codes' scales lie apart from them (WeightRows::scales).
  f8_e4m3 = 43,  // a byte each; a scale for every tile of 128 x 128
  fp4 = 44,  // E2M1, two in a byte, the even column in the low nibble; an E8M0 scale for every 32
  // 4 bits, a row's columns apart (turned over): a word has eight rows' codes of one column, so a
  // block is 8 rows and not columns; an F16 scale and a zero for every 128 columns of a row.
  awq = 45,
};
inline constexpr std::size_t dtype_count = 46;       // ids are below this
inline constexpr std::size_t gguf_dtype_count = 43;  // and those of GGUF files below this

// What a scale of a scaled type is. e8m0: 2^(byte - 127), 255 NaN.
enum class ScaleType : std::uint8_t { none, f32, bf16, e8m0, f16 };
constexpr std::size_t scale_bytes(ScaleType type) noexcept {
  if (type == ScaleType::bf16 || type == ScaleType::f16) return 2;
  return type == ScaleType::f32 ? 4 : type == ScaleType::e8m0 ? 1 : 0;
}

// Weights that share a scale.
struct ScaleTile {
  std::uint32_t rows;  // 0: the type is not scaled
  std::uint32_t columns;
};
constexpr ScaleTile scale_tile(DType type) noexcept {
  if (type == DType::f8_e4m3) return {128, 128};
  if (type == DType::awq) return {1, 128};
  return type == DType::fp4 ? ScaleTile{1, 32} : ScaleTile{0, 0};
}
constexpr bool is_scaled(DType type) noexcept { return scale_tile(type).rows != 0; }

struct DTypeInfo {
  const char* name;           // "Q4_0"; nullptr for an unknown or retired id
  std::uint32_t block_elems;  // elements per block, a divisor of every row
  std::uint32_t block_bytes;
};

// Size and name of a known id of GGUF; nullptr if the id is unknown or retired. dtype_problem()
// then says why.
const DTypeInfo* find_dtype(std::uint32_t id) noexcept;

// Why an id without DTypeInfo is refused: retired layout, ik_llama.cpp-only (ids >= 97), or
// unknown. Static text.
const char* dtype_problem(std::uint32_t id) noexcept;

// `type` must be a member of the enumeration.
const DTypeInfo& dtype_info(DType type) noexcept;

// Bytes of a row of `columns` elements; columns must be a multiple of the block.
inline std::size_t dtype_row_bytes(DType type, std::size_t columns) noexcept {
  const DTypeInfo& info = dtype_info(type);
  return columns / info.block_elems * info.block_bytes;
}

}  // namespace millrace
