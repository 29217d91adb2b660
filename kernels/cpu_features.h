// What this CPU can do and what the operating system lets it do; read once at start. Plain data,
// any thread.
#pragma once

namespace millrace {

struct CpuFeatures {
  // Instructions that the CPU reports (x86-64).
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avxvnni = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512dq = false;
  bool avx512vnni = false;
  bool amx_tile = false;
  bool amx_int8 = false;
  // Registers that the operating system saves (XCR0); without this the instructions fault.
  bool os_avx = false;
  bool os_avx512 = false;
  bool os_amx = false;  // and gave this process the tiles, which detect_cpu_features() asks for
  // aarch64: the kernel reports only what may be used.
  bool neon = false;
  bool dotprod = false;
};

// Asks the CPU (cpuid, xgetbv) or, on aarch64, the kernel. Other machines: all false.
CpuFeatures detect_cpu_features() noexcept;

}  // namespace millrace
