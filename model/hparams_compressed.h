// The part of Hparams that families with compressed attention and residual streams need.
#pragma once

#include "model/arch/family.h"
#include "model/hparams.h"
#include "model/key_reader.h"
#include "runtime/base/result.h"

namespace millrace {

// Fills h.compression and q_latent: after sizes of heads, rope and its scaling, which is taken over
// for the compressed layers; the others rotate without it.
Status read_compression(const KeyReader& keys, Hparams& h);

// Fills h.streams where the family has them.
Status read_streams(const KeyReader& keys, const FamilySpec& family, Hparams& h);

// Fills the clamps of gated units: the family's, or those of the keys.
Status read_clamps(const KeyReader& keys, const FamilySpec& family, Hparams& h);

}  // namespace millrace
