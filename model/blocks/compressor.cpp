#include "model/blocks/compressor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/rope_table.h"
#include "runtime/base/check.h"
#include "runtime/base/limits.h"

namespace millrace {

CompressorScratch::CompressorScratch(std::size_t tokens, std::size_t channels, std::size_t columns,
                                     std::size_t rotary, std::size_t workers)
    : values(tokens * channels),
      scores(tokens * channels),
      pooled(tokens * columns),
      rotation(workers * rotary) {}

std::size_t CompressorScratch::bytes(std::size_t tokens, std::size_t channels, std::size_t columns,
                                     std::size_t rotary, std::size_t workers) noexcept {
  return (tokens * (2 * channels + columns) + workers * rotary) * sizeof(float);
}

namespace {

// One call; the members are its arguments.
class CompressorPass {
 public:
  CompressorPass(const BlockContext& context, const Compressor& compressor,
                 const CompressorShape& shape, const LayerWeights& weights, LayerIndex layer,
                 std::span<const TokenPlace> tokens, CompressorScratch& scratch)
      : context_(context),
        kernels_(context.kernels),
        compressor_(compressor),
        shape_(shape),
        weights_(weights),
        layer_(layer),
        tokens_(tokens),
        scratch_(scratch),
        layout_(rows(0).layout()) {}

  void project(std::size_t first, const ActivationRows& normed) {
    const std::size_t channels = layout_.channels();
    linear(context_, weights_.matrix(compressor_.values), normed, first, tokens_.size(),
           scratch_.values.data(), channels);
    linear(context_, weights_.matrix(compressor_.scores), normed, first, tokens_.size(),
           scratch_.scores.data(), channels);
    for (std::size_t t = 0; t < tokens_.size(); ++t) {
      const std::size_t place = tokens_[t].position % layout_.ratio;
      kernels_.add(weights_.vector(compressor_.position) + place * channels, channels,
                   &scratch_.scores[t * channels]);
      rows(t).set_next(tokens_[t].position + 1);
    }
  }

  // Channels are shared over the threads; each takes its own through all tokens.
  void pool() {
    constexpr std::size_t column_grain = 32;
    context_.parallel.for_ranges(layout_.columns, column_grain,
                                 [&](std::size_t begin, std::size_t end, unsigned) {
                                   for (std::size_t t = 0; t < tokens_.size(); ++t) {
                                     keep(t, begin, end);
                                     if (ends_block(t)) pool_block(t, begin, end);
                                   }
                                 });
  }

  void cache(const RopeRows& rope) {
    context_.parallel.for_ranges(tokens_.size(), attention_token_grain,
                                 [&](std::size_t begin, std::size_t end, unsigned worker) {
                                   for (std::size_t t = begin; t < end; ++t)
                                     if (ends_block(t)) cache_row(t, rope, worker);
                                 });
  }

 private:
  CompressedRows& rows(std::size_t t) const {
    return (tokens_[t].state->kv.*compressor_.rows)(layer_);
  }
  bool ends_block(std::size_t t) const { return (tokens_[t].position + 1) % layout_.ratio == 0; }

  // Columns [begin, end) of each half, to where the blocks that are not complete are kept.
  void keep(std::size_t t, std::size_t begin, std::size_t end) {
    const std::uint32_t position = tokens_[t].position;
    const std::size_t bytes = (end - begin) * sizeof(float);
    for (std::size_t half = 0; half < layout_.halves; ++half) {
      const std::size_t at = half * layout_.columns + begin;
      const std::size_t from = t * layout_.channels() + at;
      std::memcpy(rows(t).values(position) + at, &scratch_.values[from], bytes);
      std::memcpy(rows(t).scores(position) + at, &scratch_.scores[from], bytes);
    }
  }

  void pool_block(std::size_t t, std::size_t begin, std::size_t end) {
    std::array<const float*, limits::compress_ratio_max> values, scores;
    const std::uint32_t last = tokens_[t].position;
    const std::uint32_t items = std::min(last + 1, layout_.pending());
    for (std::uint32_t i = 0; i < items; ++i) {
      const std::uint32_t position = last + 1 - items + i;
      const bool own = position + layout_.ratio > last;
      const std::size_t half = own ? layout_.halves - 1 : 0;
      const std::size_t at = half * layout_.columns + begin;
      values[i] = rows(t).values(position) + at;
      scores[i] = rows(t).scores(position) + at;
    }
    kernels_.softmax_pool(scores.data(), values.data(), items, end - begin,
                          &scratch_.pooled[t * layout_.columns + begin]);
  }

  void cache_row(std::size_t t, const RopeRows& rope, unsigned worker) {
    float* const row = &scratch_.pooled[t * layout_.columns];
    float* const cosines = &scratch_.rotation[std::size_t{worker} * shape_.rotary];
    float* const sines = cosines + rope.pairs;
    const std::uint32_t block = tokens_[t].position / layout_.ratio;
    rope_row(rope.theta, rope.pairs, block * layout_.ratio, rope.magnitude, cosines, sines);
    kernels_.rms_norm(row, weights_.vector(compressor_.norm), shape_.rms_eps, layout_.columns, row);
    kernels_.rope_norm(row + layout_.columns - shape_.rotary, 1, shape_.rotary, shape_.rotary,
                       cosines, sines);
    rows(t).store(kernels_, block, row);
  }

  const BlockContext& context_;
  const KernelTable& kernels_;
  const Compressor& compressor_;
  const CompressorShape& shape_;
  const LayerWeights& weights_;
  const LayerIndex layer_;
  const std::span<const TokenPlace> tokens_;
  CompressorScratch& scratch_;
  const CompressedLayout& layout_;
};

}  // namespace

void compress(const BlockContext& context, const Compressor& compressor,
              const CompressorShape& shape, const LayerWeights& weights, LayerIndex layer,
              std::span<const TokenPlace> tokens, std::size_t first, const ActivationRows& normed,
              const RopeRows& rope, CompressorScratch& scratch) {
  CompressorPass pass(context, compressor, shape, weights, layer, tokens, scratch);
  pass.project(first, normed);
  pass.pool();
  pass.cache(rope);
}

}  // namespace millrace
