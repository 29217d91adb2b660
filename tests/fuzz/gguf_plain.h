// A second GGUF reader, written straight down from the format for comparison only: no buffering, no
// messages, numbers in 128 bits so that nothing can overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::testing {

struct PlainTensor {
  std::string name;
  std::uint32_t type = 0;
  std::vector<std::uint64_t> ne;
  std::uint64_t offset = 0;  // absolute
  std::uint64_t bytes = 0;
};

struct PlainGguf {
  // Values in one text form: scalars as numbers, texts as they are, arrays with their elements in
  // between brackets.
  std::vector<std::pair<std::string, std::string>> meta;
  std::vector<PlainTensor> tensors;
};

// Nothing if the file must be refused.
std::optional<PlainGguf> read_gguf_plainly(std::string_view bytes);

}  // namespace millrace::testing
