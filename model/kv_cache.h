// KvCache: what attention keeps of one sequence, per layer and KV head, positions in order. Rounded
// to the cache's type on the way in; attention reads nothing else. Owned by a session. Different
// layers and positions may be stored by different threads; a position is read only after it was
// stored; make_room() runs alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "io/pinned_memory.h"
#include "kernels/kernel_table.h"
#include "model/cache_rows.h"
#include "model/compressed_rows.h"
#include "model/hparams.h"
#include "runtime/base/ids.h"
#include "runtime/base/limits.h"
#include "runtime/base/result.h"

namespace millrace {

// What a layer keeps per position.
struct KvLayout {
  std::uint32_t heads = 0;      // KV heads; 0: the layer keeps no positions (delta nets)
  std::uint32_t key = 0;        // values of a key row
  std::uint32_t value = 0;      // of a value row
  bool values_in_keys = false;  // value rows are the beginnings of the key rows (MLA's latent)
  std::uint32_t window = 0;     // positions that are ever looked back at; 0: all
};
KvLayout kv_layout(const Hparams& hparams, LayerIndex layer) noexcept;

// What a layer's compressors keep of a sequence of `context` positions: pooled keys and values, and
// the rows by which they are chosen. Layers without them: nothing.
struct CompressedLayouts {
  CompressedLayout pooled, index;
};
CompressedLayouts compressed_layouts(const Hparams& hparams, LayerIndex layer,
                                     std::uint32_t context) noexcept;

class KvCache {
 public:
  // Room for `context` positions; layers with a window hold only a stretch of them: the window, and
  // as much again or a batch of `batch_tokens_max` tokens. Fails with `memory` if the system
  // refuses.
  static Result<KvCache> create(const Hparams& hparams, std::uint32_t context, KvType type,
                                std::uint32_t batch_tokens_max = limits::batch_tokens_max);
  static std::uint64_t bytes(const Hparams& hparams, std::uint32_t context, KvType type,
                             std::uint32_t batch_tokens_max = limits::batch_tokens_max);

  KvType type() const noexcept { return type_; }
  std::uint32_t context() const noexcept { return context_; }

  // Before positions first .. first + count - 1 of a layer are stored: a windowed layer moves on if
  // they would not fit. first is 0, or a position that keeps() allows.
  void make_room(LayerIndex layer, std::uint32_t first, std::uint32_t count) noexcept;
  // Whether make_room() has to be called for a layer.
  bool moves(LayerIndex layer) const noexcept { return layers_[layer].layout.window > 0; }
  // Whether the sequence may go on from `position`: all that it would look back at is still there.
  bool keeps(std::uint32_t position) const noexcept;
  // Becomes the first `count` positions of `from`, a cache of the same shape that keeps(count):
  // those of them that the sequence will look back at.
  void copy_from(const KvCache& from, std::uint32_t count) noexcept;
  // Stores one position: heads x key values, heads x value values (none if they lie in the keys).
  void store(const KernelTable& kernels, LayerIndex layer, std::uint32_t position, const float* k,
             const float* v);

  // Row of position origin(layer) of a head; later ones are key_stride (value_stride) elements
  // apart.
  const void* keys(LayerIndex layer, std::uint32_t kv_head) const noexcept;
  const void* values(LayerIndex layer, std::uint32_t kv_head) const noexcept;
  std::uint32_t origin(LayerIndex layer) const noexcept { return layers_[layer].origin; }
  std::size_t key_stride(LayerIndex layer) const noexcept;
  std::size_t value_stride(LayerIndex layer) const noexcept;

  // Of a layer that has them (compressed_layouts()).
  CompressedRows& pooled(LayerIndex layer) noexcept { return layers_[layer].pooled; }
  CompressedRows& index(LayerIndex layer) noexcept { return layers_[layer].index; }
  // Room for a score and a place in an order per index row, for the layer that is running.
  float* row_scores() noexcept { return row_scores_; }
  std::uint32_t* row_order() noexcept { return row_order_; }

 private:
  struct Layer {
    KvLayout layout;
    CompressedLayouts compressed;
    std::uint32_t rows = 0;        // positions that there is room for
    std::uint32_t origin = 0;      // the first of them
    std::byte* data = nullptr;     // all keys, then all values
    CompressedRows pooled, index;  // behind them
  };
  KvCache() = default;
  static Layer make_layer(const Hparams& hparams, LayerIndex layer, std::uint32_t context,
                          std::uint32_t batch_tokens_max) noexcept;
  static std::vector<Layer> make_layers(const Hparams& hparams, std::uint32_t context,
                                        std::uint32_t batch_tokens_max);
  static std::map<std::uint64_t, std::uint64_t> layers_of_size(const std::vector<Layer>& layers,
                                                               KvType type);
  Status place_layers();
  static std::uint64_t positions_bytes(const Layer& layer, KvType type) noexcept;
  static std::uint64_t layer_bytes(const Layer& layer, KvType type) noexcept;
  static std::uint64_t order_bytes(const Hparams& hparams, std::uint32_t context) noexcept;
  void place_compressed(Layer& layer) const noexcept;
  std::byte* key_row(const Layer& layer, std::uint32_t kv_head, std::uint32_t row) const noexcept;
  std::byte* value_row(const Layer& layer, std::uint32_t kv_head, std::uint32_t row) const noexcept;

  KvType type_ = KvType::f16;
  std::uint32_t context_ = 0;
  PinnedMemory memory_;
  std::vector<Layer> layers_;
  float* row_scores_ = nullptr;
  std::uint32_t* row_order_ = nullptr;
};

}  // namespace millrace
