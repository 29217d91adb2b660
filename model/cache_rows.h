// Rows of a session's caches in their type: sizes, and rounding on the way in. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/dtype.h"
#include "kernels/kernel_table.h"
#include "runtime/base/units.h"

namespace millrace {

enum class KvType : std::uint8_t {
  f16,
  f32,
  q8_0,  // blocks of 32 values, 8 bits each, with a half scale (KernelTable::to_q8_0)
};

namespace cache_rows {

constexpr DType dtype(KvType type) noexcept {
  return type == KvType::f16 ? DType::f16 : type == KvType::f32 ? DType::f32 : DType::q8_0;
}

// Elements from one row to the next: whole blocks.
inline std::size_t stride(std::size_t values, KvType type) noexcept {
  constexpr std::size_t block = 32;
  return type == KvType::q8_0 ? round_up(values, block) : values;
}

inline std::size_t bytes(std::size_t values, KvType type) noexcept {
  return dtype_row_bytes(dtype(type), stride(values, type));
}

inline void store(const KernelTable& kernels, KvType type, const float* values, std::size_t count,
                  std::byte* to) {
  if (type == KvType::f32) std::memcpy(to, values, count * sizeof(float));
  else if (type == KvType::q8_0) kernels.to_q8_0(values, count, to);
  else kernels.to_f16(values, count, reinterpret_cast<std::uint16_t*>(to));
}

}  // namespace cache_rows
}  // namespace millrace
