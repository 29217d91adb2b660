// The code table of IQ4_NL and IQ4_XS.
#pragma once

#include <cstddef>

#include "kernels/blocks.h"

namespace millrace {
namespace {

// The code of each nibble, plus `add`, as bytes.
struct Iq4Table {
  std::byte bytes[16];
  constexpr explicit Iq4Table(int add) : bytes{} {
    for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::byte>(iq4_codes[i] + add);
  }
};
template <int add>
inline constexpr Iq4Table iq4_table{add};

}  // namespace
}  // namespace millrace
