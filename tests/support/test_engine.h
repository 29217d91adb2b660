// Engines for tests: quiet, cancellable, with the embedded model at hand.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "runtime/engine.h"

namespace millrace::test {

// Path of the embedded model in the source tree.
std::string embedded_model();

// An engine and what it borrows.
struct TestEngine {
  ProgressLine progress{false};
  std::atomic<bool> cancel = false;
  std::unique_ptr<Engine> engine;
};

// Fails the running test with the message if there is an error.
std::unique_ptr<TestEngine> open_engine(const EngineConfig& config);
// The error that creating it gives; fails the test if it succeeds.
Error engine_error(const EngineConfig& config);

}  // namespace millrace::test
