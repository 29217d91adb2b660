#include "model/recurrent_state.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace millrace {

namespace {

std::size_t conv_rows(const DeltaSizes& sizes) noexcept { return sizes.taps - 1; }

std::size_t conv_floats(const DeltaSizes& sizes) noexcept {
  return conv_rows(sizes) * sizes.channels();
}

std::size_t layer_floats(const DeltaSizes& sizes) noexcept {
  return conv_floats(sizes) + std::size_t{sizes.values()} * sizes.key_dim;
}

}  // namespace

std::uint64_t RecurrentState::bytes(const Hparams& hparams) noexcept {
  std::uint64_t sum = 0;
  for (LayerIndex layer = 0; layer < hparams.layers; ++layer)
    if (hparams.delta_net(layer))
      sum += PinnedMemory::mapped_bytes(1, layer_floats(hparams.delta) * sizeof(float));
  return sum;
}

Result<RecurrentState> RecurrentState::create(const Hparams& hparams) {
  RecurrentState state;
  state.sizes_ = hparams.delta;
  state.layers_.resize(hparams.layers);
  for (LayerIndex layer = 0; layer < hparams.layers; ++layer) {
    if (!hparams.delta_net(layer)) continue;
    MILLRACE_ASSIGN(const auto blocks,
                    state.memory_.allocate(1, layer_floats(hparams.delta) * sizeof(float)));
    state.layers_[layer].data = reinterpret_cast<float*>(blocks.front().data);
  }
  return state;
}

void RecurrentState::begin(LayerIndex index, std::uint32_t first, std::uint32_t count) noexcept {
  Layer& layer = layers_[index];
  MILLRACE_CHECK(layer.data != nullptr && (first == 0 || first == layer.next));
  if (first == 0) std::fill_n(layer.data, layer_floats(sizes_), 0.0F);
  layer.next = first + count;
}

bool RecurrentState::keeps(std::uint32_t position) const noexcept {
  return position == 0 || std::all_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
           return layer.data == nullptr || layer.next == position;
         });
}

void RecurrentState::copy_from(const RecurrentState& from) noexcept {
  MILLRACE_CHECK(from.layers_.size() == layers_.size());
  for (LayerIndex layer = 0; layer < layers_.size(); ++layer) {
    if (layers_[layer].data == nullptr) continue;
    std::copy_n(from.layers_[layer].data, layer_floats(sizes_), layers_[layer].data);
    layers_[layer].next = from.layers_[layer].next;
  }
}

float* RecurrentState::conv_row(LayerIndex layer, std::uint32_t position) noexcept {
  return layers_[layer].data + position % conv_rows(sizes_) * sizes_.channels();
}

float* RecurrentState::matrix(LayerIndex layer, std::uint32_t head) noexcept {
  return layers_[layer].data + conv_floats(sizes_) +
         std::size_t{head} * sizes_.key_dim * sizes_.value_dim;
}

}  // namespace millrace
