#include "runtime/kernel_study/weight_sample.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

// The upper byte of the halves that scale a block: of d, and of dmin (or m) two bytes on.
struct ScalePlace {
  std::size_t offset;
  std::size_t count;
};
ScalePlace scale_place(DType type) {
  switch (type) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {1, 2};
    case DType::q2_k:
      return {81, 2};
    case DType::q3_k:
      return {109, 1};
    case DType::q6_k:
      return {209, 1};
    default:
      return {1, 1};
  }
}

// Makes random bytes of one block a block of ordinary numbers.
void tame_block(DType type, std::byte* block) {
  constexpr std::byte small_half{8};
  switch (type) {
    case DType::f32:
      block[3] = std::byte{0x3c};
      return;
    case DType::bf16:
      block[1] = std::byte{0x3c};
      return;
    case DType::mxfp4:
      block[0] = std::byte{120};
      return;
    case DType::nvfp4:
      for (std::size_t i = 0; i < 4; ++i) block[i] &= std::byte{0x3f};
      return;
    case DType::f8_e4m3:
      if ((block[0] & std::byte{0x7f}) == std::byte{0x7f}) block[0] = std::byte{0x11};  // NaN
      return;
    case DType::fp4:
    case DType::awq:
      return;
    case DType::iq1_m:  // the half lies in the upper nibbles of four words, lowest first
      for (std::size_t i = 0; i < 4; ++i)
        block[49 + 2 * i] =
            (block[49 + 2 * i] & std::byte{0x0f}) | static_cast<std::byte>(i == 2 ? 0x80 : 0);
      return;
    default:
      break;
  }
  const ScalePlace place = scale_place(type);
  for (std::size_t i = 0; i < place.count; ++i) block[place.offset + 2 * i] = small_half;
}

// Goes on with what is there: as if `data` had been filled with `period` bytes again and again.
void repeat_bytes(std::byte* data, std::uint64_t period, std::uint64_t bytes) {
  for (std::uint64_t at = period; at < bytes; at += period)
    std::memcpy(data + at, data, std::min(period, bytes - at));
}

void fill_scales(ScaleType type, std::byte* data, std::uint64_t bytes) {
  constexpr float scale = 0.01f;
  constexpr std::uint16_t half = 0x211f;  // the same
  if (type == ScaleType::f16) {
    for (std::uint64_t at = 0; at < bytes; at += sizeof half)
      std::memcpy(data + at, &half, sizeof half);
    return;
  }
  if (type == ScaleType::e8m0) {
    std::memset(data, 120, bytes);
    return;
  }
  for (std::uint64_t at = 0; at < bytes; at += sizeof scale)
    std::memcpy(data + at, &scale, sizeof scale);
}

ScaleType sample_scales(DType type) {
  return type == DType::f8_e4m3 ? ScaleType::f32
         : type == DType::fp4   ? ScaleType::e8m0
         : type == DType::awq   ? ScaleType::f16
                                : ScaleType::none;
}

}  // namespace

WeightSample::WeightSample(DType type, std::size_t columns, std::uint64_t bytes)
    : type_(type), columns_(columns), row_bytes_(dtype_row_bytes(type, columns)) {
  if (type == DType::awq) {
    turn_over(bytes);
    return;
  }
  const ScaleTile tile = scale_tile(type);
  const std::size_t unit = tile.rows > 1 ? tile.rows : 4;
  std::uint64_t unit_bytes = unit * row_bytes_;
  if (is_scaled(type)) {
    scale_row_bytes_ =
        (columns + tile.columns - 1) / tile.columns * scale_bytes(sample_scales(type));
    unit_bytes += unit / tile.rows * scale_row_bytes_;
  }
  rows_ = std::max<std::uint64_t>(1, bytes / unit_bytes) * unit;
  if (is_scaled(type)) scale_rows_ = rows_ / tile.rows;
}

// AWQ: its columns lie one behind the other, then the scales, then the zeros.
void WeightSample::turn_over(std::uint64_t bytes) {
  const std::size_t groups = columns_ / scale_tile(type_).columns;
  const std::size_t codes = dtype_row_bytes(type_, awq_chunk_rows);
  const std::size_t scales = awq_chunk_rows * scale_bytes(sample_scales(type_));
  const std::uint64_t chunk_bytes = columns_ * codes + groups * (codes + scales);
  const std::uint64_t chunks = std::max<std::uint64_t>(1, bytes / chunk_bytes);
  rows_ = chunks * awq_chunk_rows;
  stride_ = chunks * codes;
  scale_row_bytes_ = chunks * scales;
  scale_rows_ = groups;
}

void WeightSample::fill(std::byte* data, std::uint64_t seed) const {
  const std::size_t unit = dtype_info(type_).block_bytes;
  const std::uint64_t codes = rows_ * row_bytes_;
  const std::uint64_t scales = scale_rows_ * scale_row_bytes_;
  const std::uint64_t period = std::min(codes, round_down(1 * MiB, unit));
  std::uint64_t state = 88172645463325252u + seed * 0x9e3779b97f4a7c15u;
  for (std::uint64_t i = 0; i < period; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    data[i] = static_cast<std::byte>(state >> 32);
  }
  for (std::uint64_t at = 0; at < period; at += unit) tame_block(type_, data + at);
  repeat_bytes(data, period, codes);
  if (is_scaled(type_)) fill_scales(sample_scales(type_), data + codes, scales);
  if (stride_ != 0) std::memcpy(data + codes + scales, data, scale_rows_ * stride_);
}

WeightRows WeightSample::view(const std::byte* data) const noexcept {
  WeightRows rows{data, row_bytes_, rows_, columns_};
  if (!is_scaled(type_)) return rows;
  rows.scales = data + rows_ * row_bytes_;
  rows.scale_row_bytes = scale_row_bytes_;
  rows.scale_type = sample_scales(type_);
  if (stride_ != 0) {
    rows.row_bytes = stride_;
    rows.zeros = rows.scales + scale_rows_ * scale_row_bytes_;
  }
  return rows;
}

ActivationSample::ActivationSample(const KernelTable& kernels, std::size_t columns,
                                   std::size_t tokens)
    : columns_(columns),
      stride_(q8_stride(columns)),
      super_stride_(q8_super_stride(columns)),
      x_(tokens * columns),
      q_(tokens * stride_),
      super_q_(tokens * super_stride_),
      scale_(q_.size() / 32),
      super_scale_(super_q_.size() / 256),
      sum_(q_.size() / 32),
      super_sum_(super_q_.size() / 16) {
  for (std::size_t i = 0; i < x_.size(); ++i)
    x_[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) / 250.0f;
  for (std::size_t t = 0; t < tokens; ++t) {
    const float* const from = x_.data() + t * columns;
    const std::size_t at = t * stride_;
    const std::size_t super_at = t * super_stride_;
    MILLRACE_CHECK(kernels.quantize_q8(from, columns, q_.data() + at, scale_.data() + at / 32,
                                       sum_.data() + at / 32));
    MILLRACE_CHECK(kernels.quantize_q8_super(from, columns, super_q_.data() + super_at,
                                             super_scale_.data() + super_at / 256,
                                             super_sum_.data() + super_at / 16));
  }
}

std::uint64_t ActivationSample::bytes(std::size_t columns, std::size_t tokens) noexcept {
  const std::uint64_t q = q8_stride(columns);
  const std::uint64_t super_q = q8_super_stride(columns);
  const std::uint64_t scales = q / 32 + super_q / 256;
  return tokens * ((columns + scales) * sizeof(float) + q + super_q +
                   q / 32 * sizeof(std::int32_t) + super_q / 16 * sizeof(std::int16_t));
}

void ActivationSample::multiply(const KernelTable& kernels, const PanelScratch& panels, DType type,
                                bool unrounded, const WeightRows& weights, std::size_t tokens,
                                float* y) const {
  const auto id = static_cast<std::size_t>(type);
  const bool floats =
      unrounded || (kernels.matmul_q8_super[id] == nullptr && kernels.matmul_q8[id] == nullptr);
  const PanelKernels* const many = panels.kernels(type, weights.columns, tokens, floats);
  const auto run = [&](auto matmul, auto panel_matmul, const auto& batch) {
    WeightRows rest = weights;
    if (panel_matmul != nullptr) {
      const std::size_t done = panel_matmul(weights, batch, tokens, y, weights.rows, panels.of(0));
      rest.data += done * rest.row_bytes;
      rest.tile_row += done;
      rest.rows -= done;
    }
    if (rest.rows > 0) matmul(rest, batch, tokens, y + weights.rows - rest.rows, weights.rows);
  };
  if (!floats && kernels.matmul_q8_super[id] != nullptr)
    run(kernels.matmul_q8_super[id], many == nullptr ? nullptr : many->q8_super[id],
        Q8SuperBatch{super_q_.data(), super_scale_.data(), super_sum_.data(), super_stride_,
                     super_stride_ / 256});
  else if (!floats)
    run(kernels.matmul_q8[id], many == nullptr ? nullptr : many->q8[id],
        Q8Batch{q_.data(), scale_.data(), sum_.data(), stride_, stride_ / 32});
  else
    run(kernels.matmul_f32[id], many == nullptr ? nullptr : many->f32[id],
        F32Batch{x_.data(), columns_});
}

}  // namespace millrace
