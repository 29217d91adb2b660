// The command `bench`.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace::tools {

// Adds the subcommand; the callback leaves the exit code in `code`.
void add_bench(CLI::App& app, int& code);

}  // namespace millrace::tools
