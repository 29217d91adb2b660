#include "kernels/dtype.h"

#include <array>

#include "runtime/base/check.h"

namespace millrace {

namespace {

using Table = std::array<DTypeInfo, dtype_count>;

constexpr Table make_table() {
  Table table{};  // absent ids keep a null name
  const auto set = [&table](DType type, const char* name, std::uint32_t elems,
                            std::uint32_t bytes) {
    table[static_cast<std::size_t>(type)] = {name, elems, bytes};
  };
  set(DType::f32, "F32", 1, 4);
  set(DType::f16, "F16", 1, 2);
  set(DType::q4_0, "Q4_0", 32, 18);
  set(DType::q4_1, "Q4_1", 32, 20);
  set(DType::q5_0, "Q5_0", 32, 22);
  set(DType::q5_1, "Q5_1", 32, 24);
  set(DType::q8_0, "Q8_0", 32, 34);
  set(DType::q8_1, "Q8_1", 32, 36);
  set(DType::q2_k, "Q2_K", 256, 84);
  set(DType::q3_k, "Q3_K", 256, 110);
  set(DType::q4_k, "Q4_K", 256, 144);
  set(DType::q5_k, "Q5_K", 256, 176);
  set(DType::q6_k, "Q6_K", 256, 210);
  set(DType::q8_k, "Q8_K", 256, 292);
  set(DType::iq2_xxs, "IQ2_XXS", 256, 66);
  set(DType::iq2_xs, "IQ2_XS", 256, 74);
  set(DType::iq3_xxs, "IQ3_XXS", 256, 98);
  set(DType::iq1_s, "IQ1_S", 256, 50);
  set(DType::iq4_nl, "IQ4_NL", 32, 18);
  set(DType::iq3_s, "IQ3_S", 256, 110);
  set(DType::iq2_s, "IQ2_S", 256, 82);
  set(DType::iq4_xs, "IQ4_XS", 256, 136);
  set(DType::i8, "I8", 1, 1);
  set(DType::i16, "I16", 1, 2);
  set(DType::i32, "I32", 1, 4);
  set(DType::i64, "I64", 1, 8);
  set(DType::f64, "F64", 1, 8);
  set(DType::iq1_m, "IQ1_M", 256, 56);
  set(DType::bf16, "BF16", 1, 2);
  set(DType::tq1_0, "TQ1_0", 256, 54);
  set(DType::tq2_0, "TQ2_0", 256, 66);
  set(DType::mxfp4, "MXFP4", 32, 17);
  set(DType::nvfp4, "NVFP4", 64, 36);
  set(DType::q1_0, "Q1_0", 128, 18);
  set(DType::q2_0, "Q2_0", 64, 18);
  set(DType::f8_e4m3, "F8_E4M3", 1, 1);
  set(DType::fp4, "FP4", 32, 16);
  set(DType::awq, "AWQ", 8, 4);
  return table;
}

constexpr Table table = make_table();

constexpr bool is_retired(std::uint32_t id) {
  return id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38);
}

}  // namespace

const DTypeInfo* find_dtype(std::uint32_t id) noexcept {
  return id < gguf_dtype_count && table[id].name != nullptr ? &table[id] : nullptr;
}

const char* dtype_problem(std::uint32_t id) noexcept {
  if (find_dtype(id) != nullptr) return "known";
  if (id == 4 || id == 5) {
    return "a type that was retired in 2023 (Q4_2, Q4_3); download a newer file of the model";
  }
  if (is_retired(id)) {
    return "a retired repacked layout (rows interleaved for one CPU); download a file that is not "
           "repacked, such as Q4_0 or IQ4_NL";
  }
  if (id >= 97) {
    return "a type that only ik_llama.cpp defines (ids from 97 on); download a file made for "
           "mainline llama.cpp";
  }
  return "an unknown type; the file is damaged or newer than this program";
}

const DTypeInfo& dtype_info(DType type) noexcept {
  const auto id = static_cast<std::size_t>(type);
  MILLRACE_CHECK(id < dtype_count && table[id].name != nullptr);
  return table[id];
}

}  // namespace millrace
