// Fills one ISA's products of many tokens. Included by panels_<isa>.cpp only.
#pragma once

#include "kernels/attention_tokens-inl.h"
#include "kernels/formats/grid_quants-inl.h"
#include "kernels/formats/iq4_xs-inl.h"
#include "kernels/formats/k_quants-inl.h"
#include "kernels/formats/mxfp4-inl.h"
#include "kernels/formats/nibble_blocks-inl.h"
#include "kernels/formats/q8_0-inl.h"
#include "kernels/formats/scaled-inl.h"
#include "kernels/matmul_panel-inl.h"
#include "kernels/matmul_panel_float-inl.h"
#include "kernels/matmul_panel_super-inl.h"
#include "kernels/panel_kernels.h"
#include "kernels/panel_nvfp4-inl.h"
#include "kernels/two_tokens-inl.h"

namespace millrace {
namespace {

template <class Isa, class Format>
consteval void set_tokens_min(PanelKernels& table, DType type) {
  constexpr std::size_t least = unpacks_quickly<Format> ? 3 : 2;
  table.tokens_min[static_cast<std::size_t>(type)] =
      Isa::panel_tokens_min > least ? Isa::panel_tokens_min : least;
}

template <class Isa, class Format>
consteval void add_block_panels(PanelKernels& table, DType type) {
  set_tokens_min<Isa, Format>(table, type);
  table.q8[static_cast<std::size_t>(type)] = &panel_q8<Isa, Format>;
}

template <class Isa, class Format>
consteval void add_super_panels(PanelKernels& table, DType type) {
  set_tokens_min<Isa, Format>(table, type);
  table.q8_super[static_cast<std::size_t>(type)] = &panel_q8_super<Isa, Format>;
}

template <class Isa, class Format>
consteval void add_float_panels(PanelKernels& table, DType type) {
  table.f32[static_cast<std::size_t>(type)] = &panel_f32<Isa, Format>;
}

template <class Isa>
consteval PanelKernels make_panels() {
  PanelKernels table{};
  table.float_tokens_min = 6;
  add_float_panels<Isa, FormatF32>(table, DType::f32);
  add_float_panels<Isa, FormatF16>(table, DType::f16);
  add_float_panels<Isa, FormatBf16>(table, DType::bf16);
  add_float_panels<Isa, FormatFp8>(table, DType::f8_e4m3);
  add_block_panels<Isa, FormatQ8_0>(table, DType::q8_0);
  add_block_panels<Isa, FormatQ4_0>(table, DType::q4_0);
  add_block_panels<Isa, FormatMxfp4>(table, DType::mxfp4);
  add_block_panels<Isa, FormatQ4_1>(table, DType::q4_1);
  add_block_panels<Isa, FormatQ5_0>(table, DType::q5_0);
  add_block_panels<Isa, FormatQ5_1>(table, DType::q5_1);
  add_block_panels<Isa, FormatIQ4_NL>(table, DType::iq4_nl);
  add_block_panels<Isa, FormatFp4>(table, DType::fp4);
  set_tokens_min<Isa, FormatNvfp4>(table, DType::nvfp4);
  table.q8[static_cast<std::size_t>(DType::nvfp4)] = &panel_nvfp4<Isa>;
  add_super_panels<Isa, FormatQ4_K>(table, DType::q4_k);
  add_super_panels<Isa, FormatQ5_K>(table, DType::q5_k);
  add_super_panels<Isa, FormatQ6_K>(table, DType::q6_k);
  add_super_panels<Isa, FormatQ2_K>(table, DType::q2_k);
  add_super_panels<Isa, FormatQ3_K>(table, DType::q3_k);
  add_super_panels<Isa, FormatIQ4_XS>(table, DType::iq4_xs);
  add_super_panels<Isa, FormatIQ2_XXS>(table, DType::iq2_xxs);
  add_super_panels<Isa, FormatIQ2_XS>(table, DType::iq2_xs);
  add_super_panels<Isa, FormatIQ2_S>(table, DType::iq2_s);
  add_super_panels<Isa, FormatIQ3_XXS>(table, DType::iq3_xxs);
  add_super_panels<Isa, FormatIQ3_S>(table, DType::iq3_s);
  add_super_panels<Isa, FormatIQ1_S>(table, DType::iq1_s);
  add_super_panels<Isa, FormatIQ1_M>(table, DType::iq1_m);
  table.attention_f16 = &attention_tokens_f16<Isa>;
  table.attention_f32 = &attention_tokens_f32<Isa>;
  table.attention_q8_0 = &attention_tokens_q8_0<Isa>;
  return table;
}

}  // namespace
}  // namespace millrace
