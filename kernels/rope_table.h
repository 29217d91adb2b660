// Angles of rotary position embeddings: frequencies with linear, per-pair and YaRN scaling, and the
// rows of cosines and sines that KernelTable's rope functions take. Double precision by
// kernels/math, rounded to float once: the same bits on every machine. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// One model's rope parameters, as its metadata gives them (already checked: base > 1, factor > 0,
// rotary even).
struct RopeScaling {
  std::size_t rotary = 0;  // elements that turn: twice the pairs
  double base = 10000;
  double factor = 1;            // positions are stretched by this: theta / factor
  bool yarn = false;            // blend stretched and original by wavelength; else stretch all
  double original_context = 0;  // YaRN: positions the model was first trained on, > 0
  double extension = 1;         // YaRN: ext_factor; 0 stretches all pairs
  double attention_factor = 1;  // YaRN: attn_factor, a factor of the magnitude
  double beta_fast = 32;        // YaRN: pairs that turn more often than this keep their angle
  double beta_slow = 1;         // YaRN: pairs that turn less often than this are stretched fully
  bool truncate = true;         // YaRN: the two borders rounded to whole pairs outward
  const float* pair_factors = nullptr;  // rotary / 2 divisors of theta (rope_freqs.weight), or none
};

// YaRN's borders between kept and stretched pairs.
struct YarnRange {
  double low;
  double high;
};
YarnRange yarn_range(const RopeScaling& scaling) noexcept;

// theta[i] for the rotary / 2 pairs: radians per position.
//   original_i = base^(-2i / rotary) / pair_factor_i
//   not YaRN   theta_i = original_i / factor
//   YaRN       keep_i = extension * (1 - clamp((i - low) / max(0.001, high - low), 0, 1))
//              theta_i = original_i * ((1 - keep_i) / factor + keep_i)
void rope_frequencies(const RopeScaling& scaling, double* theta) noexcept;

// What cosines and sines of both q and k are multiplied by: 1 without YaRN, else
// attention_factor * (1 + 0.1 * ln(factor)), the second part only if extension is not 0.
double rope_magnitude(const RopeScaling& scaling) noexcept;

// cosine[i], sine[i] = magnitude * cos, sin(position * theta[i]), each rounded to float once.
// position < 2^24.
void rope_row(const double* theta, std::size_t pairs, std::uint32_t position, double magnitude,
              float* cosine, float* sine) noexcept;

}  // namespace millrace
