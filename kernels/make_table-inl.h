// Fills the table of one ISA: every kernel, instantiated over its policy. Included by
// table_<isa>.cpp only.
#pragma once

#include "kernels/attention-inl.h"
#include "kernels/decode-inl.h"
#include "kernels/delta-inl.h"
#include "kernels/elementwise-inl.h"
#include "kernels/formats/float-inl.h"
#include "kernels/formats/mxfp4-inl.h"
#include "kernels/formats/nibble_blocks-inl.h"
#include "kernels/formats/q8_0-inl.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_f32-inl.h"
#include "kernels/matmul_q8-inl.h"
#include "kernels/matvec_q8-inl.h"
#include "kernels/norm-inl.h"
#include "kernels/pool-inl.h"
#include "kernels/quantize-inl.h"
#include "kernels/read_all-inl.h"
#include "kernels/rope-inl.h"
#include "kernels/softmax-inl.h"

namespace millrace {
namespace {

template <class Isa, class Format>
consteval void add_float_type(KernelTable& table, DType type) {
  const auto id = static_cast<std::size_t>(type);
  table.matmul_f32[id] = &matmul_f32<Isa, Format>;
  table.decode_row[id] = &decode_row<Isa, Format>;
}

template <class Isa, class Format>
consteval void add_block_type(KernelTable& table, DType type) {
  add_float_type<Isa, Format>(table, type);
  table.matmul_q8[static_cast<std::size_t>(type)] = &product_q8<Isa, Format>;
}

// Quantized weights and their products.
template <class Isa>
consteval void add_weight_kernels(KernelTable& table) {
  table.quantize_q8 = &quantize_q8<Isa>;
  table.read_all = &read_all<Isa>;
  add_float_type<Isa, FormatF32>(table, DType::f32);
  add_float_type<Isa, FormatF16>(table, DType::f16);
  add_float_type<Isa, FormatBf16>(table, DType::bf16);
  add_block_type<Isa, FormatQ8_0>(table, DType::q8_0);
  add_block_type<Isa, FormatQ4_0>(table, DType::q4_0);
  add_block_type<Isa, FormatMxfp4>(table, DType::mxfp4);
  add_block_type<Isa, FormatQ4_1>(table, DType::q4_1);
  add_block_type<Isa, FormatQ5_0>(table, DType::q5_0);
  add_block_type<Isa, FormatQ5_1>(table, DType::q5_1);
  add_block_type<Isa, FormatIQ4_NL>(table, DType::iq4_nl);
}

// The rest of a layer: norms, rotations, attention, element-wise functions.
template <class Isa>
consteval void add_layer_kernels(KernelTable& table) {
  table.rms_norm = &rms_norm<Isa>;
  table.rope_norm = &rope_norm<Isa>;
  table.rope_neox = &rope_neox<Isa>;
  table.attention_f16 = &attention_f16<Isa>;
  table.attention_f32 = &attention_f32<Isa>;
  table.attention_q8_0 = &attention_q8_0<Isa>;
  table.softmax = &softmax<Isa>;
  table.softmax_pool = &softmax_pool<Isa>;
  table.swiglu = &swiglu<Isa>;
  table.swiglu_clamped = &swiglu_clamped<Isa>;
  table.sigmoid = &sigmoid<Isa>;
  table.l2_norm = &l2_norm<Isa>;
  table.conv_silu = &conv_silu<Isa>;
  table.delta_step = &delta_step<Isa>;
  table.add = &add<Isa>;
  table.add_scaled = &add_scaled<Isa>;
  table.to_f16 = &to_f16<Isa>;
  table.to_q8_0 = &to_q8_0<Isa>;
  table.exp = &exp_all<Isa>;
  table.all_finite = &all_finite<Isa>;
}

template <class Isa>
consteval KernelTable make_table() {
  KernelTable table{};
  table.name = Isa::name;
  add_weight_kernels<Isa>(table);
  add_layer_kernels<Isa>(table);
  return table;
}

}  // namespace
}  // namespace millrace
