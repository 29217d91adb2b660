// F32, F16 and BF16 over an ISA policy: a step is 16 elements, and the last step of a row may be
// shorter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

struct FormatF32 {
  static constexpr std::size_t step_vectors = 1;
  static constexpr std::size_t step_bytes = 64;
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* p, typename Isa::F32x16 (&out)[1]) {
    out[0] = Isa::load(reinterpret_cast<const float*>(p));
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 decode_first(const std::byte* p,
                                                                  std::size_t count) {
    return Isa::load_first(reinterpret_cast<const float*>(p), count);
  }
};

struct FormatF16 {
  static constexpr std::size_t step_vectors = 1;
  static constexpr std::size_t step_bytes = 32;
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* p, typename Isa::F32x16 (&out)[1]) {
    out[0] = Isa::load_f16(reinterpret_cast<const std::uint16_t*>(p));
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 decode_first(const std::byte* p,
                                                                  std::size_t count) {
    return Isa::load_f16_first(reinterpret_cast<const std::uint16_t*>(p), count);
  }
};

struct FormatBf16 {
  static constexpr std::size_t step_vectors = 1;
  static constexpr std::size_t step_bytes = 32;
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* p, typename Isa::F32x16 (&out)[1]) {
    out[0] = Isa::load_bf16(reinterpret_cast<const std::uint16_t*>(p));
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 decode_first(const std::byte* p,
                                                                  std::size_t count) {
    return Isa::load_bf16_first(reinterpret_cast<const std::uint16_t*>(p), count);
  }
};

}  // namespace
}  // namespace millrace
