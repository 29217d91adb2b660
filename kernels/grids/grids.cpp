#include "kernels/grids/grids.h"

#include "kernels/grids/packed.h"

namespace millrace {

namespace {

template <class Word, std::size_t count, std::size_t letters>
constexpr Grid<Word, count> expand(const std::uint16_t (&packed)[count],
                                   const std::uint8_t (&alphabet)[letters]) {
  constexpr unsigned bits = letters > 4 ? 3 : 2;
  Grid<Word, count> out{};
  for (std::size_t i = 0; i < count; ++i) {
    for (unsigned j = 0; j < sizeof(Word); ++j) {
      const unsigned letter = packed[i] >> bits * j & ((1u << bits) - 1);
      out.at[i] |= static_cast<Word>(alphabet[letter]) << 8 * j;
    }
  }
  return out;
}

constexpr std::uint8_t iq2_alphabet[] = {8, 25, 43};
constexpr std::uint8_t iq3xxs_alphabet[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::uint8_t iq3s_alphabet[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr std::uint8_t iq1_alphabet[] = {0xff, 0, 1};

}  // namespace

constinit const Grid<std::uint64_t, 256> iq2xxs_grid =
    expand<std::uint64_t>(iq2xxs_packed, iq2_alphabet);
constinit const Grid<std::uint64_t, 512> iq2xs_grid =
    expand<std::uint64_t>(iq2xs_packed, iq2_alphabet);
constinit const Grid<std::uint64_t, 1024> iq2s_grid =
    expand<std::uint64_t>(iq2s_packed, iq2_alphabet);
constinit const Grid<std::uint32_t, 256> iq3xxs_grid =
    expand<std::uint32_t>(iq3xxs_packed, iq3xxs_alphabet);
constinit const Grid<std::uint32_t, 512> iq3s_grid =
    expand<std::uint32_t>(iq3s_packed, iq3s_alphabet);
constinit const Grid<std::uint64_t, 2048> iq1s_grid =
    expand<std::uint64_t>(iq1s_packed, iq1_alphabet);

}  // namespace millrace
