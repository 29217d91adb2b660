#include "model/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "kernels/dtype.h"
#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::size_t q8_block = 32;

// The first position that a token at `position` looks back at.
std::uint32_t first_visible(std::uint32_t position, std::uint32_t window) noexcept {
  return position + 1 > window ? position + 1 - window : 0;
}

}  // namespace

KvLayout kv_layout(const Hparams& hparams, LayerIndex layer) noexcept {
  if (hparams.attention == AttentionKind::mla)
    return {.heads = 1,
            .key = hparams.kv_latent + hparams.rotary,
            .value = hparams.kv_latent,
            .values_in_keys = true,
            .window = hparams.window(layer)};
  return {.heads = hparams.kv_heads[layer],
          .key = hparams.head_dim,
          .value = hparams.value_dim,
          .values_in_keys = false,
          .window = hparams.window(layer)};
}

KvCache::Layer KvCache::make_layer(const Hparams& hparams, LayerIndex layer, std::uint32_t context,
                                   std::uint32_t batch_tokens_max) noexcept {
  Layer made{.layout = kv_layout(hparams, layer), .rows = context};
  // With at least a window of spare rows, moving on costs at most one row's copy per token.
  if (const std::uint64_t window = made.layout.window; window > 0)
    made.rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        context, window + std::max<std::uint64_t>(window, batch_tokens_max)));
  return made;
}

std::size_t KvCache::row_bytes(std::size_t values, KvType type) noexcept {
  switch (type) {
    case KvType::f16:
      return 2 * values;
    case KvType::f32:
      return 4 * values;
    case KvType::q8_0:
      return dtype_row_bytes(DType::q8_0, round_up(values, q8_block));
  }
  return 0;
}

std::uint64_t KvCache::layer_bytes(const Layer& layer, KvType type) noexcept {
  const KvLayout& layout = layer.layout;
  const std::uint64_t per_row =
      row_bytes(layout.key, type) + (layout.values_in_keys ? 0 : row_bytes(layout.value, type));
  return std::uint64_t{layer.rows} * layout.heads * per_row;
}

std::uint64_t KvCache::bytes(const Hparams& hparams, std::uint32_t context, KvType type,
                             std::uint32_t batch_tokens_max) noexcept {
  std::uint64_t sum = 0;
  for (LayerIndex layer = 0; layer < hparams.layers; ++layer)
    sum += PinnedMemory::mapped_bytes(
        1, layer_bytes(make_layer(hparams, layer, context, batch_tokens_max), type));
  return sum;
}

Result<KvCache> KvCache::create(const Hparams& hparams, std::uint32_t context, KvType type,
                                std::uint32_t batch_tokens_max) {
  KvCache cache;
  cache.type_ = type;
  cache.context_ = context;
  for (LayerIndex index = 0; index < hparams.layers; ++index) {
    Layer layer = make_layer(hparams, index, context, batch_tokens_max);
    MILLRACE_ASSIGN(const auto blocks, cache.memory_.allocate(1, layer_bytes(layer, type)));
    layer.data = blocks.front().data;
    cache.layers_.push_back(layer);
  }
  return cache;
}

std::byte* KvCache::key_row(const Layer& layer, std::uint32_t kv_head,
                            std::uint32_t row) const noexcept {
  return layer.data +
         (std::size_t{kv_head} * layer.rows + row) * row_bytes(layer.layout.key, type_);
}

std::byte* KvCache::value_row(const Layer& layer, std::uint32_t kv_head,
                              std::uint32_t row) const noexcept {
  if (layer.layout.values_in_keys) return key_row(layer, kv_head, row);
  std::byte* const values = key_row(layer, layer.layout.heads, 0);
  return values + (std::size_t{kv_head} * layer.rows + row) * row_bytes(layer.layout.value, type_);
}

const void* KvCache::keys(LayerIndex layer, std::uint32_t kv_head) const noexcept {
  return key_row(layers_[layer], kv_head, 0);
}

const void* KvCache::values(LayerIndex layer, std::uint32_t kv_head) const noexcept {
  return value_row(layers_[layer], kv_head, 0);
}

std::size_t KvCache::stride(std::size_t values) const noexcept {
  return type_ == KvType::q8_0 ? round_up(values, q8_block) : values;
}

std::size_t KvCache::key_stride(LayerIndex layer) const noexcept {
  return stride(layers_[layer].layout.key);
}

std::size_t KvCache::value_stride(LayerIndex layer) const noexcept {
  const KvLayout& layout = layers_[layer].layout;
  return stride(layout.values_in_keys ? layout.key : layout.value);
}

bool KvCache::keeps(std::uint32_t position) const noexcept {
  return position == 0 || std::all_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
           return layer.layout.window == 0 ||
                  layer.origin <= first_visible(position, layer.layout.window);
         });
}

void KvCache::make_room(LayerIndex index, std::uint32_t first, std::uint32_t count) noexcept {
  Layer& layer = layers_[index];
  if (first == 0) layer.origin = 0;
  if (first + count <= layer.origin + layer.rows) return;
  MILLRACE_CHECK(layer.layout.window > 0);
  const std::uint32_t kept = first_visible(first, layer.layout.window);
  MILLRACE_CHECK(kept >= layer.origin && first + count <= kept + layer.rows);
  const auto move = [&](std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memmove(to, from, bytes * (first - kept));
  };
  for (std::uint32_t head = 0; head < layer.layout.heads; ++head) {
    move(key_row(layer, head, 0), key_row(layer, head, kept - layer.origin),
         row_bytes(layer.layout.key, type_));
    if (layer.layout.values_in_keys) continue;
    move(value_row(layer, head, 0), value_row(layer, head, kept - layer.origin),
         row_bytes(layer.layout.value, type_));
  }
  layer.origin = kept;
}

void KvCache::store_row(const KernelTable& kernels, const float* values, std::size_t count,
                        std::byte* to) const {
  if (type_ == KvType::f32) std::memcpy(to, values, count * sizeof(float));
  else if (type_ == KvType::q8_0) kernels.to_q8_0(values, count, to);
  else kernels.to_f16(values, count, reinterpret_cast<std::uint16_t*>(to));
}

void KvCache::store(const KernelTable& kernels, LayerIndex index, std::uint32_t position,
                    const float* k, const float* v) {
  const Layer& layer = layers_[index];
  const KvLayout& layout = layer.layout;
  MILLRACE_CHECK(position >= layer.origin && position - layer.origin < layer.rows);
  const std::uint32_t row = position - layer.origin;
  for (std::uint32_t head = 0; head < layout.heads; ++head) {
    store_row(kernels, k + std::size_t{head} * layout.key, layout.key, key_row(layer, head, row));
    if (!layout.values_in_keys)
      store_row(kernels, v + std::size_t{head} * layout.value, layout.value,
                value_row(layer, head, row));
  }
}

}  // namespace millrace
