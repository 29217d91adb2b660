// Tiles of AMX-INT8, and the policy of the work around them. Meanings: kernels/isa/README.md and
// kernels/matmul_tiles-inl.h. Included by table_amx.cpp only.
#pragma once

#include "kernels/isa/avx512vnni.h"

namespace millrace {
namespace {

// Codes stay signed bytes: a tile product takes them as they are.
struct Amx : Avx512Vnni {
  static constexpr const char* name = "amx";
  static constexpr std::int32_t signed_bias = 0;
};

// The tile instructions; the process must have asked the kernel for tile data (cpu_features.cpp).
struct AmxTiles {
  // The 64 bytes that LDTILECFG reads.
  struct Configuration {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 32, 64};
    std::uint8_t rows[16] = {16, 16, 8};
  };
  static_assert(sizeof(Configuration) == 64);

  static void configure(std::size_t tokens) {
    Configuration configuration;
    configuration.rows[0] = configuration.rows[1] = static_cast<std::uint8_t>(tokens);
    settle(&configuration);
    _tile_loadconfig(&configuration);
  }
  static void release() { _tile_release(); }
  static void zero_sums() { _tile_zero(0); }
  static void load_tokens(const void* p, std::size_t stride) {
    settle(p);
    _tile_loadd(1, p, stride);
  }
  static void load_weights(const void* p) {
    settle(p);
    _tile_loadd(2, p, 64);
  }
  static void multiply() { _tile_dpbssd(0, 1, 2); }
  static void store_sums(void* p) {
    _tile_stored(0, p, 64);
    settle(p);
  }

 private:
  // GCC's intrinsics do not tell the optimizer what memory they read.
  [[gnu::always_inline]] static void settle(const void* p) {
    __asm__ volatile("" : : "r"(p) : "memory");
  }
};

}  // namespace
}  // namespace millrace
