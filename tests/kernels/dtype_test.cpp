#include "kernels/dtype.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

using namespace millrace;

namespace {

struct Expected {
  std::uint32_t id;
  std::string name;
  std::uint32_t elems, bytes;
};

// Written out again, from the description of the format.
const Expected expected_types[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};

std::string problem(std::uint32_t id) { return dtype_problem(id); }

}  // namespace

TEST_CASE("dtype: every type of the format has its id, name and block size, and no other id") {
  std::uint32_t known = 0;
  for (std::uint32_t id = 0; id < 1000; ++id) known += find_dtype(id) != nullptr ? 1 : 0;
  CHECK(known == std::size(expected_types));
  for (const Expected& expected : expected_types) {
    INFO(expected.name);
    const DTypeInfo* info = find_dtype(expected.id);
    REQUIRE(info != nullptr);
    CHECK(info->name == expected.name);
    CHECK(info->block_elems == expected.elems);
    CHECK(info->block_bytes == expected.bytes);
    CHECK(&dtype_info(static_cast<DType>(expected.id)) == info);
  }
}

TEST_CASE("dtype: the enumeration's names stand for the right ids") {
  CHECK(std::string(dtype_info(DType::mxfp4).name) == "MXFP4");
  CHECK(std::string(dtype_info(DType::iq4_xs).name) == "IQ4_XS");
  CHECK(std::string(dtype_info(DType::bf16).name) == "BF16");
  CHECK(static_cast<int>(DType::q8_0) == 8);
}

TEST_CASE("dtype: a row's bytes are its blocks") {
  CHECK(dtype_row_bytes(DType::f32, 7) == 28);
  CHECK(dtype_row_bytes(DType::mxfp4, 96) == 51);
  CHECK(dtype_row_bytes(DType::q4_k, 4096) == 16 * 144);
}

TEST_CASE("dtype: refused ids say why") {
  for (const std::uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    CHECK(find_dtype(id) == nullptr);
    CHECK(problem(id).find("retired") != std::string::npos);
    CHECK(problem(id).find("download") != std::string::npos);
  }
  for (const std::uint32_t id : {97u, 137u, 230u, 0xffffffffu}) {
    CHECK(find_dtype(id) == nullptr);
    CHECK(problem(id).find("ik_llama.cpp") != std::string::npos);
  }
  for (const std::uint32_t id : {43u, 60u, 96u}) {
    CHECK(find_dtype(id) == nullptr);
    CHECK(problem(id).find("unknown") != std::string::npos);
  }
}
