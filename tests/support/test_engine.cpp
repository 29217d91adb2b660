#include "tests/support/test_engine.h"

#include <catch2/catch.hpp>

namespace millrace::test {

std::string embedded_model() {
  return MILLRACE_SOURCE_ROOT "/model/embedded/little-tales-moe-42M-mxfp4.gguf";
}

std::unique_ptr<TestEngine> open_engine(const EngineConfig& config) {
  auto made = std::make_unique<TestEngine>();
  auto engine = Engine::create(config, made->progress, made->cancel);
  if (!engine) FAIL(engine.error().what);
  made->engine = *std::move(engine);
  return made;
}

Error engine_error(const EngineConfig& config) {
  TestEngine made;
  auto engine = Engine::create(config, made.progress, made.cancel);
  if (engine) FAIL("the engine opened " << config.model_path);
  return std::move(engine).error();
}

}  // namespace millrace::test
