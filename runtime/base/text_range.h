// A stretch of a text, in bytes.
#pragma once

#include <cstddef>

namespace millrace {

struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;  // one past the last byte
};

inline bool operator==(const TextRange& a, const TextRange& b) noexcept {
  return a.begin == b.begin && a.end == b.end;
}

}  // namespace millrace
