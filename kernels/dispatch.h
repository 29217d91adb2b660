// Which kernel tables this build holds and this CPU can run; chosen once at start.
#pragma once

#include <span>
#include <string>
#include <string_view>

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

}  // namespace millrace
