// The other side of panels (panel-inl.h): the activations of a tile's tokens repacked so that a
// tile reads them in one stream beside the panels' records. A record per block, in the panels'
// order, holds for each part of the block four bytes of each token, then the next four, …, then
// what each token's sum starts with (the codes' common offset times -sum(q)); behind the parts with
// minima the tokens' sums, and the tokens' scales.
#pragma once

#include <cstring>

#include "kernels/panel-inl.h"

namespace millrace {
namespace {

// Where things lie in a record of a tile of `tokens`, in bytes.
template <class Shape>
struct TokenShape {
  static constexpr std::size_t part_words = Shape::steps + 1;  // four bytes each, of a token
  // Blocks of one part: a float; else pairs of 16-bit numbers, two parts each.
  static constexpr std::size_t sum_words = !Shape::minima      ? 0
                                           : Shape::parts == 1 ? 1
                                                               : Shape::parts / 2;
  static constexpr std::size_t words = Shape::parts * part_words + sum_words + 1;
  static constexpr std::size_t bytes(std::size_t tokens) { return 4 * words * tokens; }
  static constexpr std::size_t part(std::size_t index, std::size_t tokens) {
    return 4 * part_words * tokens * index;
  }
  static constexpr std::size_t start(std::size_t index, std::size_t tokens) {
    return part(index, tokens) + 4 * Shape::steps * tokens;
  }
  static constexpr std::size_t sums(std::size_t tokens) { return part(Shape::parts, tokens); }
  static constexpr std::size_t scale(std::size_t tokens) { return 4 * (words - 1) * tokens; }
};

// A record of one token among `tokens`, being filled: place(n) is four bytes, `tokens` words apart.
class TokenPlace4 {
 public:
  TokenPlace4(std::byte* record, std::size_t token, std::size_t tokens)
      : at_(record + 4 * token), step_(4 * tokens) {}
  template <class Word>
  void put(const Word& word) {
    static_assert(sizeof word == 4);
    std::memcpy(at_, &word, 4);
    at_ += step_;
  }
  void put_bytes(const std::int8_t* q, std::size_t words) {
    for (std::size_t k = 0; k < words; ++k, at_ += step_) std::memcpy(at_, q + 4 * k, 4);
  }

 private:
  std::byte* at_;
  std::size_t step_;
};

// Tokens [first, first + tokens) of a batch per 32 values.
template <class Shape>
void place_tokens(const Q8Batch& x, std::size_t first, std::size_t tokens, std::size_t blocks,
                  const RecordOrder& order, std::int32_t offset, std::byte* records) {
  const std::size_t step = TokenShape<Shape>::bytes(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::int8_t* const q = x.q + (first + t) * x.q_stride;
    const float* const scale = x.scale + (first + t) * x.block_stride;
    const std::int32_t* const sum = x.sum + (first + t) * x.block_stride;
    for (std::size_t b = 0; b < blocks; ++b) {
      TokenPlace4 place(records + order.place(b) * step, t, tokens);
      place.put_bytes(q + 32 * b, 8);
      place.put(-offset * sum[b]);
      if constexpr (Shape::minima) place.put(static_cast<float>(sum[b]));
      place.put(scale[b]);
    }
  }
}

// The same of a batch in super-blocks.
template <class Shape>
void place_tokens(const Q8SuperBatch& x, std::size_t first, std::size_t tokens, std::size_t blocks,
                  const RecordOrder& order, std::int32_t offset, std::byte* records) {
  constexpr std::size_t units = 16 / Shape::parts;  // sums per 16 values in a part
  const std::size_t step = TokenShape<Shape>::bytes(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::int8_t* const q = x.q + (first + t) * x.q_stride;
    const float* const scale = x.scale + (first + t) * x.block_stride;
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::int16_t* const unit = x.sum + (first + t) * x.q_stride / 16 + 16 * b;
      TokenPlace4 place(records + order.place(b) * step, t, tokens);
      std::int16_t sums[Shape::parts];
      for (std::size_t part = 0; part < Shape::parts; ++part) {
        std::int32_t sum = 0;
        for (std::size_t i = 0; i < units; ++i) sum += unit[units * part + i];
        sums[part] = static_cast<std::int16_t>(sum);
        place.put_bytes(q + 256 * b + 4 * Shape::steps * part, Shape::steps);
        place.put(-offset * sum);
      }
      for (std::size_t i = 0; i < TokenShape<Shape>::sum_words; ++i) {
        std::int32_t pair;
        std::memcpy(&pair, sums + 2 * i, 4);
        place.put(pair);
      }
      place.put(scale[b]);
    }
  }
}

// Tokens in tiles of at most `most`, as even as they can be: `larger` of size + 1 and the rest of
// size.
struct TokenTiles {
  std::size_t size, larger, count;
  TokenTiles(std::size_t tokens, std::size_t most)
      : size(0), larger(0), count((tokens + most - 1) / most) {
    size = tokens / count;
    larger = tokens % count;
  }
  std::size_t of(std::size_t tile) const { return size + (tile < larger ? 1 : 0); }
};

}  // namespace
}  // namespace millrace
