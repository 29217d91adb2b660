#include "kernels/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include <cstdint>

namespace millrace {

#if defined(__x86_64__)

namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
  static bool bit(unsigned value, unsigned index) noexcept { return ((value >> index) & 1) != 0; }
};

// All zero if the CPU has no such leaf.
Registers cpuid(unsigned leaf, unsigned subleaf) noexcept {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// The instruction itself, since the compiler's _xgetbv asks for -mxsave.
std::uint64_t read_xcr0() noexcept {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

// Linux gives a process tile data only when it asks, once; threads that exist or come have it too.
bool tiles_granted() noexcept {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr unsigned long tile_data = 18;     // the component's bit in XCR0
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

constexpr bool has_all(std::uint64_t value, std::uint64_t bits) noexcept {
  return (value & bits) == bits;
}

}  // namespace

CpuFeatures detect_cpu_features() noexcept {
  CpuFeatures features;
  const Registers basic = cpuid(1, 0);
  features.fma = Registers::bit(basic.c, 12);
  features.f16c = Registers::bit(basic.c, 29);
  const Registers extended = cpuid(7, 0);
  features.avx2 = Registers::bit(extended.b, 5);
  features.avx512f = Registers::bit(extended.b, 16);
  features.avx512dq = Registers::bit(extended.b, 17);
  features.avx512bw = Registers::bit(extended.b, 30);
  features.avx512vl = Registers::bit(extended.b, 31);
  features.avx512vnni = Registers::bit(extended.c, 11);
  features.amx_tile = Registers::bit(extended.d, 24);
  features.amx_int8 = Registers::bit(extended.d, 25);
  if (extended.a >= 1) features.avxvnni = Registers::bit(cpuid(7, 1).a, 4);

  const bool os_uses_xsave = Registers::bit(basic.c, 27);
  const std::uint64_t xcr0 = os_uses_xsave ? read_xcr0() : 0;
  features.os_avx = has_all(xcr0, 0x06);     // SSE and AVX state
  features.os_avx512 = has_all(xcr0, 0xe6);  // and masks, upper halves, registers 16 to 31
  features.os_amx = features.amx_tile && has_all(xcr0, 0x60000) && tiles_granted();
  return features;
}

#elif defined(__aarch64__)

CpuFeatures detect_cpu_features() noexcept {
  CpuFeatures features;
  features.neon = true;                               // part of the base architecture
#if defined(__linux__)
  constexpr unsigned long asimd_dotprod = 1ul << 20;  // HWCAP_ASIMDDP
  features.dotprod = (getauxval(AT_HWCAP) & asimd_dotprod) != 0;
#endif
  return features;
}

#else

CpuFeatures detect_cpu_features() noexcept { return {}; }

#endif

}  // namespace millrace
