// KvCache: keys and values of one sequence, per layer and KV head, positions in order. Rounded to
// the cache's type on the way in; attention reads nothing else. Owned by a session. Different
// layers and positions may be written by different threads; a position is read only after it was
// written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "io/pinned_memory.h"
#include "kernels/kernel_table.h"
#include "model/hparams.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

enum class KvType : std::uint8_t { f16, f32 };

class KvCache {
 public:
  // Room for `context` positions. Fails with `memory` if the system refuses.
  static Result<KvCache> create(const Hparams& hparams, std::uint32_t context, KvType type);
  static std::uint64_t bytes(const Hparams& hparams, std::uint32_t context, KvType type) noexcept;

  KvType type() const noexcept { return type_; }
  std::uint32_t context() const noexcept { return context_; }
  // Stores one position: kv_heads x head_dim keys, kv_heads x value_dim values.
  void store(const KernelTable& kernels, LayerIndex layer, std::uint32_t position, const float* k,
             const float* v);
  // First position of a head; positions are head_dim (value_dim) elements apart.
  const void* keys(LayerIndex layer, std::uint32_t kv_head) const noexcept;
  const void* values(LayerIndex layer, std::uint32_t kv_head) const noexcept;
  std::uint32_t head_dim() const noexcept { return head_dim_; }
  std::uint32_t value_dim() const noexcept { return value_dim_; }

 private:
  KvCache() = default;
  std::size_t element_bytes() const noexcept { return type_ == KvType::f16 ? 2 : 4; }
  std::byte* key_row(LayerIndex layer, std::uint32_t kv_head,
                     std::uint32_t position) const noexcept;
  std::byte* value_row(LayerIndex layer, std::uint32_t kv_head,
                       std::uint32_t position) const noexcept;

  KvType type_ = KvType::f16;
  std::uint32_t context_ = 0, head_dim_ = 0, value_dim_ = 0;
  std::vector<std::uint32_t> kv_heads_;  // per layer
  PinnedMemory memory_;
  std::vector<std::byte*> layer_data_;  // per layer: all keys, then all values
};

}  // namespace millrace
