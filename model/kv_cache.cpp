#include "model/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "kernels/dtype.h"
#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::size_t pending_alignment = 64;  // of float32 behind rows of any type

// The first position that a token at `position` looks back at.
std::uint32_t first_visible(std::uint32_t position, std::uint32_t window) noexcept {
  return position + 1 > window ? position + 1 - window : 0;
}

}  // namespace

KvLayout kv_layout(const Hparams& hparams, LayerIndex layer) noexcept {
  if (hparams.delta_net(layer)) return {};
  if (hparams.attention == AttentionKind::mla)
    return {.heads = 1,
            .key = hparams.kv_latent + hparams.rotary,
            .value = hparams.kv_latent,
            .values_in_keys = true,
            .window = hparams.window(layer)};
  if (hparams.attention == AttentionKind::compressed)
    return {.heads = 1,
            .key = hparams.head_dim,
            .value = hparams.head_dim,
            .values_in_keys = true,
            .window = hparams.window(layer)};
  return {.heads = hparams.kv_heads[layer],
          .key = hparams.head_dim,
          .value = hparams.value_dim,
          .values_in_keys = false,
          .window = hparams.window(layer)};
}

CompressedLayouts compressed_layouts(const Hparams& hparams, LayerIndex layer,
                                     std::uint32_t context) noexcept {
  const Compression& compression = hparams.compression;
  const std::uint32_t ratio = compression.ratio(layer);
  CompressedLayouts layouts;
  if (ratio == 0) return layouts;
  layouts.pooled = {.ratio = ratio,
                    .halves = compression.halves(layer),
                    .columns = hparams.head_dim,
                    .rows = context / ratio};
  if (!compression.indexed(layer)) return layouts;
  layouts.index = layouts.pooled;
  layouts.index.columns = compression.index_dim;
  return layouts;
}

KvCache::Layer KvCache::make_layer(const Hparams& hparams, LayerIndex layer, std::uint32_t context,
                                   std::uint32_t batch_tokens_max) noexcept {
  Layer made;
  made.layout = kv_layout(hparams, layer);
  made.compressed = compressed_layouts(hparams, layer, context);
  made.rows = context;
  // With at least a window of spare rows, moving on costs at most one row's copy per token.
  if (const std::uint64_t window = made.layout.window; window > 0)
    made.rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        context, window + std::max<std::uint64_t>(window, batch_tokens_max)));
  return made;
}

std::uint64_t KvCache::positions_bytes(const Layer& layer, KvType type) noexcept {
  const KvLayout& layout = layer.layout;
  const std::uint64_t per_row = cache_rows::bytes(layout.key, type) +
                                (layout.values_in_keys ? 0 : cache_rows::bytes(layout.value, type));
  return std::uint64_t{layer.rows} * layout.heads * per_row;
}

std::uint64_t KvCache::layer_bytes(const Layer& layer, KvType type) noexcept {
  std::uint64_t bytes = positions_bytes(layer, type);
  for (const CompressedLayout* part : {&layer.compressed.pooled, &layer.compressed.index})
    bytes = round_up(bytes + part->row_bytes(type), pending_alignment) + part->pending_bytes();
  return bytes;
}

// As layer_bytes() counts them.
void KvCache::place_compressed(Layer& layer) const noexcept {
  std::uint64_t at = positions_bytes(layer, type_);
  const auto place = [&](const CompressedLayout& layout) {
    std::byte* const rows = layer.data + at;
    at = round_up(at + layout.row_bytes(type_), pending_alignment);
    auto* const pending = reinterpret_cast<float*>(layer.data + at);
    at += layout.pending_bytes();
    return CompressedRows(layout, type_, rows, pending);
  };
  layer.pooled = place(layer.compressed.pooled);
  layer.index = place(layer.compressed.index);
}

// Scores and places of the index rows, where more than are looked at can be visible.
std::uint64_t KvCache::order_bytes(const Hparams& hparams, std::uint32_t context) noexcept {
  std::uint32_t rows = 0;
  for (LayerIndex layer = 0; layer < hparams.layers; ++layer)
    rows = std::max(rows, compressed_layouts(hparams, layer, context).index.rows);
  if (rows <= hparams.compression.index_top_k) return 0;
  return rows * std::uint64_t{sizeof(float) + sizeof(std::uint32_t)};
}

// How many layers need so many bytes.
std::map<std::uint64_t, std::uint64_t> KvCache::layers_of_size(const std::vector<Layer>& layers,
                                                               KvType type) {
  std::map<std::uint64_t, std::uint64_t> found;
  for (const Layer& layer : layers)
    if (const std::uint64_t bytes = layer_bytes(layer, type); bytes > 0) ++found[bytes];
  return found;
}

std::vector<KvCache::Layer> KvCache::make_layers(const Hparams& hparams, std::uint32_t context,
                                                 std::uint32_t batch_tokens_max) {
  std::vector<Layer> layers;
  for (LayerIndex layer = 0; layer < hparams.layers; ++layer)
    layers.push_back(make_layer(hparams, layer, context, batch_tokens_max));
  return layers;
}

std::uint64_t KvCache::bytes(const Hparams& hparams, std::uint32_t context, KvType type,
                             std::uint32_t batch_tokens_max) {
  std::uint64_t sum = PinnedMemory::mapped_bytes(1, order_bytes(hparams, context));
  for (const auto& [bytes, count] :
       layers_of_size(make_layers(hparams, context, batch_tokens_max), type))
    sum += PinnedMemory::mapped_bytes(count, bytes);
  return sum;
}

// Layers of one size lie together, so that they fill huge pages.
Status KvCache::place_layers() {
  for (const auto& [bytes, count] : layers_of_size(layers_, type_)) {
    MILLRACE_ASSIGN(const auto blocks, memory_.allocate(count, bytes));
    auto block = blocks.begin();
    for (Layer& layer : layers_) {
      if (layer_bytes(layer, type_) != bytes) continue;
      layer.data = block++->data;
      place_compressed(layer);
    }
  }
  return {};
}

Result<KvCache> KvCache::create(const Hparams& hparams, std::uint32_t context, KvType type,
                                std::uint32_t batch_tokens_max) {
  KvCache cache;
  cache.type_ = type;
  cache.context_ = context;
  cache.layers_ = make_layers(hparams, context, batch_tokens_max);
  MILLRACE_TRY(cache.place_layers());
  if (const std::uint64_t bytes = order_bytes(hparams, context); bytes > 0) {
    MILLRACE_ASSIGN(const auto blocks, cache.memory_.allocate(1, bytes));
    cache.row_scores_ = reinterpret_cast<float*>(blocks.front().data);
    cache.row_order_ =
        reinterpret_cast<std::uint32_t*>(cache.row_scores_ + bytes / (2 * sizeof(float)));
  }
  return cache;
}

std::byte* KvCache::key_row(const Layer& layer, std::uint32_t kv_head,
                            std::uint32_t row) const noexcept {
  return layer.data +
         (std::size_t{kv_head} * layer.rows + row) * cache_rows::bytes(layer.layout.key, type_);
}

std::byte* KvCache::value_row(const Layer& layer, std::uint32_t kv_head,
                              std::uint32_t row) const noexcept {
  if (layer.layout.values_in_keys) return key_row(layer, kv_head, row);
  std::byte* const values = key_row(layer, layer.layout.heads, 0);
  return values +
         (std::size_t{kv_head} * layer.rows + row) * cache_rows::bytes(layer.layout.value, type_);
}

const void* KvCache::keys(LayerIndex layer, std::uint32_t kv_head) const noexcept {
  return key_row(layers_[layer], kv_head, 0);
}

const void* KvCache::values(LayerIndex layer, std::uint32_t kv_head) const noexcept {
  return value_row(layers_[layer], kv_head, 0);
}

std::size_t KvCache::key_stride(LayerIndex layer) const noexcept {
  return cache_rows::stride(layers_[layer].layout.key, type_);
}

std::size_t KvCache::value_stride(LayerIndex layer) const noexcept {
  const KvLayout& layout = layers_[layer].layout;
  return cache_rows::stride(layout.values_in_keys ? layout.key : layout.value, type_);
}

bool KvCache::keeps(std::uint32_t position) const noexcept {
  return position == 0 || std::all_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
           return layer.pooled.keeps(position) && layer.index.keeps(position) &&
                  (layer.layout.window == 0 ||
                   layer.origin <= first_visible(position, layer.layout.window));
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
         cache_rows::bytes(layer.layout.key, type_));
    if (layer.layout.values_in_keys) continue;
    move(value_row(layer, head, 0), value_row(layer, head, kept - layer.origin),
         cache_rows::bytes(layer.layout.value, type_));
  }
  layer.origin = kept;
}

void KvCache::copy_from(const KvCache& from, std::uint32_t count) noexcept {
  MILLRACE_CHECK(from.type_ == type_ && from.context_ == context_ && from.keeps(count));
  for (LayerIndex index = 0; index < layers_.size(); ++index) {
    Layer& layer = layers_[index];
    const Layer& source = from.layers_[index];
    layer.origin = layer.layout.window == 0 ? 0 : first_visible(count, layer.layout.window);
    const std::uint32_t row = layer.origin - source.origin;
    const std::size_t rows = count - layer.origin;
    for (std::uint32_t head = 0; head < layer.layout.heads; ++head) {
      std::memcpy(key_row(layer, head, 0), from.key_row(source, head, row),
                  rows * cache_rows::bytes(layer.layout.key, type_));
      if (!layer.layout.values_in_keys)
        std::memcpy(value_row(layer, head, 0), from.value_row(source, head, row),
                    rows * cache_rows::bytes(layer.layout.value, type_));
    }
    layer.pooled.copy_from(source.pooled, count);
    layer.index.copy_from(source.index, count);
  }
}

void KvCache::store(const KernelTable& kernels, LayerIndex index, std::uint32_t position,
                    const float* k, const float* v) {
  const Layer& layer = layers_[index];
  const KvLayout& layout = layer.layout;
  MILLRACE_CHECK(position >= layer.origin && position - layer.origin < layer.rows);
  const std::uint32_t row = position - layer.origin;
  for (std::uint32_t head = 0; head < layout.heads; ++head) {
    cache_rows::store(kernels, type_, k + std::size_t{head} * layout.key, layout.key,
                      key_row(layer, head, row));
    if (!layout.values_in_keys)
      cache_rows::store(kernels, type_, v + std::size_t{head} * layout.value, layout.value,
                        value_row(layer, head, row));
  }
}

}  // namespace millrace
