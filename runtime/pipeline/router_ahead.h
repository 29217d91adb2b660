// RouterAhead: what later layers' routers would choose from the present residual stream. A guess
// for the prefetcher: it changes no result. Owned by BatchWalk; one call at a time, while the
// experts of the present layer are being read. Allocates at construction only.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"
#include "model/blocks/activations.h"
#include "model/model_spec.h"
#include "model/router.h"
#include "model/trunk_store.h"
#include "prefetch/prefetcher.h"
#include "runtime/base/parallel.h"

namespace millrace {

class RouterAhead {
 public:
  // All borrowed.
  RouterAhead(const ModelSpec& spec, const KernelTable& kernels, const TrunkStore& trunk);

  // Tells the prefetcher the choice of the next layers with experts, as many as it wants, from the
  // stream `x` as this layer's FFN takes it (width floats); of hash-routed layers the exact choice
  // for `token`. Layers that are not pinned are passed over. Layers behind the last
  // belong to the next token, of which nothing is known yet.
  void look(Prefetcher& prefetcher, Parallel& parallel, LayerIndex layer, TokenId token,
            const float* x);

 private:
  bool foresee(Parallel& parallel, LayerIndex target, TokenId token, const float* x);

  const ModelSpec& spec_;
  const KernelTable& kernels_;
  const TrunkStore& trunk_;
  ActivationRows normed_;
  std::vector<float> logits_, weights_;
  std::vector<ExpertIndex> chosen_;
};

// The rule of a layer's router.
RouterRule router_rule(const Hparams& h, const LayerWeights& weights) noexcept;

}  // namespace millrace
