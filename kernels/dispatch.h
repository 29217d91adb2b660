// Which kernel tables this build holds and this CPU can run; chosen once at start. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"
#include "runtime/base/result.h"

namespace millrace {

// Tables that this CPU and operating system can run, slowest first; back() is the default. Never
// empty (scalar).
std::span<const KernelTable* const> supported_kernels();

// The table called `name`; empty name: the default. Fails with `usage`, saying which CPU feature is
// missing, that the OS does not enable it, that this build lacks it, or that no ISA has that name
// (and which have).
Result<const KernelTable*> choose_kernels(std::string_view name);

// The same for a CPU with the given features, which need not be this one (its tables may then not
// run).
std::vector<const KernelTable*> supported_kernels(const CpuFeatures& cpu);
Result<const KernelTable*> choose_kernels(std::string_view name, const CpuFeatures& cpu);

}  // namespace millrace
