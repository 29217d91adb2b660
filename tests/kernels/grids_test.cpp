// The codebooks against the digests of the tables that other programs hold.
#include "kernels/grids/grids.h"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

using namespace millrace;

namespace {

// SHA-256 as FIPS 180-4 defines it, over whole messages. The round constants are the first 32 bits
// of the fractions of the cube roots (and, at the start, square roots) of the primes.
class Sha256 {
 public:
  static std::string hex(std::vector<std::uint8_t> message) {
    Sha256 hash;
    const std::uint64_t bits = message.size() * 8;
    message.push_back(0x80);
    while (message.size() % 64 != 56) message.push_back(0);
    for (int i = 7; i >= 0; --i) message.push_back(static_cast<std::uint8_t>(bits >> 8 * i));
    for (std::size_t at = 0; at < message.size(); at += 64) hash.block(&message[at]);
    std::string text;
    for (const std::uint32_t word : hash.state_)
      for (int i = 7; i >= 0; --i) text += "0123456789abcdef"[word >> 4 * i & 15];
    return text;
  }

 private:
  Sha256() {
    std::size_t found = 0;
    for (unsigned candidate = 2; found < 64; ++candidate) {
      bool prime = true;
      for (unsigned d = 2; d * d <= candidate; ++d) prime &= candidate % d != 0;
      if (!prime) continue;
      if (found < 8) state_[found] = fraction_bits(std::sqrt(candidate));
      round_[found++] = fraction_bits(std::cbrt(candidate));
    }
  }
  static std::uint32_t fraction_bits(double root) {
    return static_cast<std::uint32_t>((root - std::floor(root)) * 0x1p32);
  }
  void block(const std::uint8_t* p) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | p[4 * i + j];
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto v = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
      const std::uint32_t most = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
      const std::uint32_t t1 = v[7] +
                               (std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25)) +
                               choice + round_[i] + w[i];
      const std::uint32_t t2 =
          (std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22)) + most;
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) state_[i] += v[i];
  }

  std::array<std::uint32_t, 8> state_{};
  std::array<std::uint32_t, 64> round_{};
};

template <class Word, std::size_t count>
std::string digest(const Grid<Word, count>& grid) {
  std::vector<std::uint8_t> bytes;
  for (const Word word : grid.at)
    for (std::size_t i = 0; i < sizeof(Word); ++i)
      bytes.push_back(static_cast<std::uint8_t>(word >> 8 * i));
  return Sha256::hex(std::move(bytes));
}

}  // namespace

TEST_CASE("grids: the digest used here is SHA-256") {
  CHECK(Sha256::hex({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Sha256::hex({'a', 'b', 'c'}) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("grids: each codebook has the bytes of the file format's table") {
  CHECK(digest(iq2xxs_grid) == "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54");
  CHECK(digest(iq2xs_grid) == "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de");
  CHECK(digest(iq2s_grid) == "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88");
  CHECK(digest(iq3xxs_grid) == "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d");
  CHECK(digest(iq3s_grid) == "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f");
  CHECK(digest(iq1s_grid) == "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a");
}
