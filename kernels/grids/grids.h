// Codebooks of the IQ1, IQ2 and IQ3 formats. They are part of the file formats: a trained choice of
// lattice points that no formula gives. An entry holds 8 values (4 for iq3*), element j in byte j:
// magnitudes, or for iq1s the signed values -1, 0, 1. Constant data, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// A plain array: the ISA tables include this.
template <class Word, std::size_t count>
struct Grid {
  Word at[count];
};

extern const Grid<std::uint64_t, 256> iq2xxs_grid;  // 8, 25, 43
extern const Grid<std::uint64_t, 512> iq2xs_grid;   // 8, 25, 43
extern const Grid<std::uint64_t, 1024> iq2s_grid;   // 8, 25, 43
extern const Grid<std::uint32_t, 256> iq3xxs_grid;  // 4, 12, 20, 28, 36, 44, 52, 62
extern const Grid<std::uint32_t, 512> iq3s_grid;    // 1, 3, 5, ... 15
extern const Grid<std::uint64_t, 2048> iq1s_grid;   // -1, 0, 1; also of IQ1_M

}  // namespace millrace
