// The typed values of GGUF metadata (spec: ids 0 to 12), widened as MetaValue keeps them.
#pragma once

#include <cstdint>

#include "model/format/checkpoint.h"
#include "model/format/header_reader.h"
#include "runtime/base/result.h"

namespace millrace {

enum class GgufType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// Reads one value of type `type`, a number from the file. Fails with `format` on an unknown type, a
// bool that is neither 0 nor 1, nested arrays, and lengths that the file cannot hold.
Result<MetaValue> read_gguf_value(HeaderReader& reader, std::uint32_t type);

}  // namespace millrace
