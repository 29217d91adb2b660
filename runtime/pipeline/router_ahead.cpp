#include "runtime/pipeline/router_ahead.h"

#include <algorithm>

#include "model/blocks/linear.h"

namespace millrace {

RouterRule router_rule(const Hparams& h, const LayerWeights& weights) noexcept {
  return {.gating = h.gating,
          .normalize = h.normalize_weights,
          .scale = h.weights_scale,
          .experts = h.experts,
          .used = h.experts_used,
          .groups = h.groups,
          .groups_used = h.groups_used,
          .group_by_best = h.group_by_best,
          .selection_bias = weights.vector(VectorRole::selection_bias)};
}

RouterAhead::RouterAhead(const ModelSpec& spec, const KernelTable& kernels, const TrunkStore& trunk)
    : spec_(spec), kernels_(kernels), trunk_(trunk), normed_(1, spec.hparams.width) {
  logits_.resize(spec.hparams.experts);
  weights_.resize(spec.hparams.experts_used);
  chosen_.resize(spec.hparams.experts_used);
}

void RouterAhead::look(Prefetcher& prefetcher, Parallel& parallel, LayerIndex layer, TokenId token,
                       const float* x) {
  std::uint32_t wanted = prefetcher.layers_ahead();
  for (LayerIndex target = layer + 1; wanted > 0 && target < spec_.hparams.layers; ++target) {
    if (!spec_.layers[target].experts) continue;
    if (foresee(parallel, target, token, x)) prefetcher.foreseen(target, chosen_);
    --wanted;
  }
}

bool RouterAhead::foresee(Parallel& parallel, LayerIndex target, TokenId token, const float* x) {
  const Hparams& h = spec_.hparams;
  if (h.hashed(target)) {
    std::copy_n(trunk_.hash_routes().experts(target, token).data(), h.experts_used, chosen_.data());
    return true;
  }
  const LayerWeights* const weights = trunk_.pinned(target);
  if (weights == nullptr) return false;
  kernels_.rms_norm(x, weights->vector(VectorRole::ffn_norm), h.rms_eps, h.width, normed_.row(0));
  const BlockContext context{kernels_, parallel, ActivationMode::f32};
  linear_f32(context, weights->matrix(MatrixRole::router), normed_, 0, 1, logits_.data(),
             h.experts);
  add_bias(context, weights->vector(VectorRole::router_bias), h.experts, 1, logits_.data(),
           h.experts);
  if (!kernels_.all_finite(logits_.data(), h.experts)) return false;
  route(kernels_, router_rule(h, *weights), logits_.data(), chosen_.data(), weights_.data());
  return true;
}

}  // namespace millrace
