// Fills the super-block part of one ISA's table. Included by super_<isa>.cpp only.
#pragma once

#include "kernels/decode-inl.h"
#include "kernels/formats/grid_quants-inl.h"
#include "kernels/formats/iq4_xs-inl.h"
#include "kernels/formats/k_quants-inl.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_awq-inl.h"
#include "kernels/matmul_f32-inl.h"
#include "kernels/matmul_fp4-inl.h"
#include "kernels/matmul_nvfp4-inl.h"
#include "kernels/matmul_scaled-inl.h"
#include "kernels/matvec_super-inl.h"
#include "kernels/quantize_super-inl.h"

namespace millrace {
namespace {

template <class Isa, class Format>
consteval void add_super_type(WeightKernels& table, DType type) {
  const auto id = static_cast<std::size_t>(type);
  table.matmul_q8_super[id] = &product_q8_super<Isa, Format>;
  table.matmul_f32[id] = &matmul_f32_super<Isa, Format>;
  table.decode_row[id] = &decode_row_super<Isa, Format>;
}

template <class Isa, class Format>
consteval void add_scaled_type(WeightKernels& table, DType type) {
  const auto id = static_cast<std::size_t>(type);
  table.matmul_f32[id] = &matmul_scaled<Isa, Format>;
  table.decode_scaled[id] = &decode_scaled<Isa, Format>;
}

template <class Isa>
consteval WeightKernels make_super_table() {
  WeightKernels table{};
  table.quantize_q8_super = &quantize_q8_super<Isa>;
  add_super_type<Isa, FormatQ4_K>(table, DType::q4_k);
  add_super_type<Isa, FormatQ5_K>(table, DType::q5_k);
  add_super_type<Isa, FormatQ6_K>(table, DType::q6_k);
  add_super_type<Isa, FormatQ2_K>(table, DType::q2_k);
  add_super_type<Isa, FormatQ3_K>(table, DType::q3_k);
  add_super_type<Isa, FormatIQ4_XS>(table, DType::iq4_xs);
  add_super_type<Isa, FormatIQ2_XXS>(table, DType::iq2_xxs);
  add_super_type<Isa, FormatIQ2_XS>(table, DType::iq2_xs);
  add_super_type<Isa, FormatIQ2_S>(table, DType::iq2_s);
  add_super_type<Isa, FormatIQ3_XXS>(table, DType::iq3_xxs);
  add_super_type<Isa, FormatIQ3_S>(table, DType::iq3_s);
  add_super_type<Isa, FormatIQ1_S>(table, DType::iq1_s);
  add_super_type<Isa, FormatIQ1_M>(table, DType::iq1_m);
  const auto nvfp4 = static_cast<std::size_t>(DType::nvfp4);
  table.matmul_q8[nvfp4] = &matmul_nvfp4<Isa>;
  table.matmul_f32[nvfp4] = &matmul_f32<Isa, FormatNvfp4>;
  table.decode_row[nvfp4] = &decode_row<Isa, FormatNvfp4>;
  add_scaled_type<Isa, FormatFp8>(table, DType::f8_e4m3);
  add_scaled_type<Isa, FormatFp4>(table, DType::fp4);
  table.matmul_q8[static_cast<std::size_t>(DType::fp4)] = &matmul_fp4<Isa>;
  const auto awq = static_cast<std::size_t>(DType::awq);
  table.matmul_q8[awq] = &matmul_awq<Isa>;
  table.matmul_f32[awq] = &matmul_awq_f32<Isa>;
  table.decode_scaled[awq] = &decode_awq<Isa>;
  return table;
}

}  // namespace
}  // namespace millrace
