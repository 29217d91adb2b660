#include "model/kv_cache.h"

#include <cstring>

namespace millrace {

namespace {

std::uint64_t layer_bytes(const Hparams& hparams, LayerIndex layer, std::uint32_t context,
                          KvType type) {
  const std::uint64_t element = type == KvType::f16 ? 2 : 4;
  return std::uint64_t{context} * hparams.kv_heads[layer] * (hparams.head_dim + hparams.value_dim) *
         element;
}

}  // namespace

std::uint64_t KvCache::bytes(const Hparams& hparams, std::uint32_t context, KvType type) noexcept {
  std::uint64_t sum = 0;
  for (LayerIndex layer = 0; layer < hparams.layers; ++layer)
    sum += PinnedMemory::mapped_bytes(1, layer_bytes(hparams, layer, context, type));
  return sum;
}

Result<KvCache> KvCache::create(const Hparams& hparams, std::uint32_t context, KvType type) {
  KvCache cache;
  cache.type_ = type;
  cache.context_ = context;
  cache.head_dim_ = hparams.head_dim;
  cache.value_dim_ = hparams.value_dim;
  cache.kv_heads_ = hparams.kv_heads;
  for (LayerIndex layer = 0; layer < hparams.layers; ++layer) {
    MILLRACE_ASSIGN(const auto blocks,
                    cache.memory_.allocate(1, layer_bytes(hparams, layer, context, type)));
    cache.layer_data_.push_back(blocks.front().data);
  }
  return cache;
}

std::byte* KvCache::key_row(LayerIndex layer, std::uint32_t kv_head,
                            std::uint32_t position) const noexcept {
  return layer_data_[layer] +
         (std::size_t{kv_head} * context_ + position) * head_dim_ * element_bytes();
}

std::byte* KvCache::value_row(LayerIndex layer, std::uint32_t kv_head,
                              std::uint32_t position) const noexcept {
  std::byte* const values =
      layer_data_[layer] + std::size_t{kv_heads_[layer]} * context_ * head_dim_ * element_bytes();
  return values + (std::size_t{kv_head} * context_ + position) * value_dim_ * element_bytes();
}

const void* KvCache::keys(LayerIndex layer, std::uint32_t kv_head) const noexcept {
  return key_row(layer, kv_head, 0);
}

const void* KvCache::values(LayerIndex layer, std::uint32_t kv_head) const noexcept {
  return value_row(layer, kv_head, 0);
}

void KvCache::store(const KernelTable& kernels, LayerIndex layer, std::uint32_t position,
                    const float* k, const float* v) {
  MILLRACE_CHECK(position < context_);
  for (std::uint32_t head = 0; head < kv_heads_[layer]; ++head) {
    std::byte* const key = key_row(layer, head, position);
    std::byte* const value = value_row(layer, head, position);
    if (type_ == KvType::f32) {
      std::memcpy(key, k + std::size_t{head} * head_dim_, head_dim_ * sizeof(float));
      std::memcpy(value, v + std::size_t{head} * value_dim_, value_dim_ * sizeof(float));
    } else {
      kernels.to_f16(k + std::size_t{head} * head_dim_, head_dim_,
                     reinterpret_cast<std::uint16_t*>(key));
      kernels.to_f16(v + std::size_t{head} * value_dim_, value_dim_,
                     reinterpret_cast<std::uint16_t*>(value));
    }
  }
}

}  // namespace millrace
