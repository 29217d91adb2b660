// Opens a TinyModel from memory, as "m.gguf".
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "model/format/gguf.h"
#include "model/format/gguf_split.h"
#include "model/model_spec.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/tiny_model.h"

namespace millrace::testing {

// A format that cannot be opened fails the test: what is tested lies above it.
inline Checkpoint tiny_checkpoint(const TinyModel& model) {
  auto file = read_gguf_bytes(model.build());
  if (!file) FAIL(file.error().what);
  auto joined = join_gguf_shards("m.gguf", *std::move(file), [](const std::string& path) {
    return Result<GgufFile>(Error{ErrorCode::io, path + ": there is one file only"});
  });
  if (!joined) FAIL(joined.error().what);
  return *std::move(joined);
}

inline Result<ModelSpec> tiny_spec(const TinyModel& model) {
  return read_model_spec(tiny_checkpoint(model));
}

// It must be refused, with this code and every part of the text.
inline void check_tiny_refused(const TinyModel& model, ErrorCode code,
                               const std::vector<std::string>& parts) {
  const auto spec = tiny_spec(model);
  if (spec) {
    FAIL_CHECK("accepted; expected: " << parts.front());
    return;
  }
  INFO(spec.error().what);
  CHECK(spec.error().code == code);
  CHECK_THAT(spec.error().what, Catch::StartsWith("m.gguf: "));
  for (const std::string& part : parts) CHECK_THAT(spec.error().what, Catch::Contains(part));
}

}  // namespace millrace::testing
