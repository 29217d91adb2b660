// What a fuzz program is made of: a body that libFuzzer can call as well, and inputs to start from.
// Linked with driver.cpp it mutates the seeds in a fixed pseudo-random order, so that a run of the
// test suite is the same everywhere; linked with -fsanitize=fuzzer it searches (fuzz/meson.build).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Feeds one input; aborts (MILLRACE_CHECK) when something is wrong. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace millrace::testing {

// Good inputs, from which mutation starts.
std::vector<std::string> fuzz_seeds();
// Mutated inputs of one run: a few seconds' worth.
std::uint64_t fuzz_rounds();

}  // namespace millrace::testing
