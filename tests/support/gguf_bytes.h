// Reads a GGUF file that lies in memory.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "model/format/gguf_file.h"

namespace millrace::testing {

inline Result<GgufFile> read_gguf_bytes(std::string_view bytes,
                                        const std::string& path = "m.gguf") {
  const auto read = [&](std::uint64_t offset, void* target, std::uint64_t count) -> Status {
    MILLRACE_CHECK(offset <= bytes.size() && count <= bytes.size() - offset);
    std::memcpy(target, bytes.data() + offset, count);
    return {};
  };
  return read_gguf_file({path, bytes.size(), read});
}

}  // namespace millrace::testing
