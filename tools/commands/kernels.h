// millrace kernels: every weight product of this CPU beside its limit.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace::tools {

void add_kernels(CLI::App& app, int& code);

}  // namespace millrace::tools
