#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "kernels/dispatch.h"
#include "tests/kernels/weight_cases.h"

namespace millrace {
namespace {

using namespace testing;

std::vector<char> read_oracle(const std::string& name) {
  std::ifstream file(MILLRACE_ORACLES "/blocks/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> decode(const KernelTable& table, Weights& w) {
  GuardedArray<float> out(w.columns);
  table.decode_row[id_of(w.type)](w.row(0), w.columns, out.data());
  return {out.span().begin(), out.span().end()};
}

// One block of bytes (37 i + 11) mod 256 with its scale fields set (d 0.0625, minimum 0.03125),
// decoded: the element sums and samples that the format's specification lists.
struct Sample {
  std::size_t index;
  double value;
};
struct Vector {
  DType type;
  double sum, weighted_sum;
  std::vector<Sample> samples;
};

std::vector<std::byte> vector_block(DType type) {
  std::vector<std::byte> block(dtype_info(type).block_bytes);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(37 * i + 11);
  const HalfFields fields = half_fields(type);
  for (std::size_t i = 0; i < fields.count; ++i) {
    block[fields.offset + 2 * i] = std::byte{0};
    block[fields.offset + 2 * i + 1] = i == 0 ? std::byte{0x2c} : std::byte{0x28};
  }
  if (type == DType::mxfp4) block[0] = std::byte{125};
  if (type == DType::iq1_m) spread_half(block.data(), 0x2c00);
  constexpr unsigned nvfp4_scales[] = {0x30, 0x38, 0x05, 0x41};
  for (std::size_t i = 0; type == DType::nvfp4 && i < 4; ++i)
    block[i] = static_cast<std::byte>(nvfp4_scales[i]);
  return block;
}

}  // namespace

TEST_CASE("decode: the oracle's blocks decode to the oracle's bits on every ISA") {
  for (const DType type : quantized_types()) {
    const std::string name = dtype_info(type).name;
    if (name.starts_with("IQ1") || name.starts_with("IQ2") || name.starts_with("IQ3")) continue;
    if (type == DType::nvfp4) continue;  // neither has the oracle these
    const auto raw = read_oracle(name + ".bin");
    const auto values = read_oracle(name + ".f32");
    REQUIRE(raw.size() == dtype_row_bytes(type, 512));
    REQUIRE(values.size() == 512 * sizeof(float));
    for (const KernelTable* table : supported_kernels()) {
      std::vector<float> out(512);
      table->decode_row[id_of(type)](reinterpret_cast<const std::byte*>(raw.data()), 512,
                                     out.data());
      INFO(table->name << " " << name);
      CHECK(std::memcmp(out.data(), values.data(), values.size()) == 0);
    }
  }
}

namespace {

const Vector vectors[] = {
    {DType::q4_0, -1.3125, -32.375, {{0, -0.1875}, {1, 0.125}, {17, -0.0625}, {31, 0.0}}},
    {DType::q4_1, 16.3125, 265.4375, {{0, 0.96875}, {1, 0.28125}, {17, 0.78125}, {31, 0.78125}}},
    {DType::q5_0, 0.9375, 7.0, {{0, 0.5625}, {1, -0.125}, {17, 0.0}, {31, 0.0625}}},
    {DType::q5_1, 32.5625, 510.3125, {{0, 1.21875}, {1, 1.53125}, {17, 0.34375}, {31, 0.34375}}},
    {DType::q8_0, -11.0, -505.0, {{0, 5.3125}, {1, 7.625}, {17, -3.375}, {31, -3.0}}},
    {DType::iq4_nl, -16.0625, -432.4375, {{0, -2.1875}, {1, 1.5625}, {17, -0.625}, {31, 0.0625}}},
    {DType::mxfp4, 3.125, 79.75, {{0, 0.0}, {1, 0.75}, {17, 0.75}, {31, 0.75}}},
    {DType::q2_k,
     128.6875,
     15195.625,
     {{0, 2.0625},
      {1, 0.0},
      {17, -0.09375},
      {33, -0.15625},
      {100, 1.25},
      {200, 0.5},
      {255, 0.28125}}},
    {DType::q3_k,
     59.875,
     11071.5625,
     {{0, 5.0625}, {1, -6.75}, {17, 8.0}, {33, 2.75}, {100, 0.0}, {200, 1.5625}, {255, 2.625}}},
    {DType::q4_k,
     3402.5,
     473302.5,
     {{0, 19.71875},
      {1, -1.59375},
      {17, -1.59375},
      {33, 1.25},
      {100, 5.9375},
      {200, 8.65625},
      {255, 3.03125}}},
    {DType::q5_k,
     7263.5,
     1001715.5,
     {{0, 50.71875},
      {1, -1.59375},
      {17, -1.59375},
      {33, -0.25},
      {100, 14.6875},
      {200, 8.65625},
      {255, 6.78125}}},
    {DType::q6_k,
     288.25,
     49026.25,
     {{0, -89.4375},
      {1, 106.0},
      {17, 32.0},
      {33, -42.0},
      {100, 157.6875},
      {200, 68.0625},
      {255, -3.75}}},
    {DType::iq4_xs,
     -687.8125,
     -130695.875,
     {{0, 4.0625},
      {1, -0.0625},
      {17, 2.1875},
      {33, -0.4375},
      {100, 2.5},
      {200, 71.25},
      {255, -1.0}}},
    {DType::iq2_xxs,
     47.734375,
     2299.5625,
     {{0, -3.6953125},
      {1, 3.6953125},
      {17, 3.6953125},
      {33, 1.0625},
      {100, 1.6875},
      {200, -0.5625},
      {255, -5.0390625}}},
    {DType::iq2_xs,
     93.15625,
     7699.8828125,
     {{0, -0.6875},
      {1, 2.1484375},
      {17, -1.1875},
      {33, 1.3125},
      {100, -0.5625},
      {200, 0.4375},
      {255, -1.1875}}},
    {DType::iq2_s,
     -50.0390625,
     -3880.0390625,
     {{0, -9.0703125},
      {1, 5.2734375},
      {17, -7.7265625},
      {33, 0.9765625},
      {100, -1.5625},
      {200, 4.4921875},
      {255, 4.8828125}}},
    {DType::iq3_xxs,
     -42.75,
     188.9375,
     {{0, -0.8125},
      {1, 0.5625},
      {17, -0.0625},
      {33, 1.1875},
      {100, -1.5625},
      {200, 2.8125},
      {255, -0.9375}}},
    {DType::iq3_s,
     91.0,
     12674.375,
     {{0, -5.0625},
      {1, 15.1875},
      {17, -15.1875},
      {33, 8.9375},
      {100, -1.0625},
      {200, 17.1875},
      {255, 14.0625}}},
    {DType::iq1_s,
     1.25,
     -739.3125,
     {{0, -0.1640625},
      {1, 0.0234375},
      {17, -0.1640625},
      {33, 0.9140625},
      {100, 0.8203125},
      {200, -0.0859375},
      {255, -0.2734375}}},
    {DType::iq1_m,
     2.5625,
     -139.75,
     {{0, -0.0546875},
      {1, 0.3828125},
      {17, 0.1171875},
      {33, 0.0546875},
      {100, -0.2109375},
      {200, 0.0234375},
      {255, -0.1171875}}},
    {DType::nvfp4,
     14.208984375,
     561.6611328125,
     {{0, -3.0}, {1, 1.0}, {9, -1.0}, {17, -2.0}, {33, 0.01953125}, {63, 1.125}}},
};

}  // namespace

TEST_CASE("decode: the specification's test vectors hold on every ISA") {
  for (const Vector& vector : vectors) {
    const auto block = vector_block(vector.type);
    for (const KernelTable* table : supported_kernels()) {
      INFO(table->name << " " << dtype_info(vector.type).name);
      std::vector<float> x(dtype_info(vector.type).block_elems);
      table->decode_row[id_of(vector.type)](block.data(), x.size(), x.data());
      double sum = 0, weighted = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum += x[i];
        weighted += static_cast<double>(i + 1) * x[i];
      }
      CHECK(sum == vector.sum);
      CHECK(weighted == vector.weighted_sum);
      for (const Sample& sample : vector.samples) CHECK(x[sample.index] == sample.value);
    }
  }
}

TEST_CASE("decode: each element is the float64 definition rounded once, whatever the scale") {
  std::uint64_t seed = 1;
  const auto check = [&seed](DType type, std::size_t columns) {
    for (const Scales scales : {Scales::ordinary, Scales::denormal, Scales::extreme}) {
      Weights w(type, 1, columns, scales, ++seed);
      std::vector<double> exact(columns);
      reference::decode_row(type, w.row(0), columns, exact.data());
      const std::vector<float> expected(exact.begin(), exact.end());
      for (const KernelTable* table : supported_kernels()) {
        INFO(table->name << " " << dtype_info(type).name << " " << columns);
        CHECK(first_difference(decode(*table, w), expected) == -1);
      }
    }
  };
  for (const DType type : quantized_types())
    for (const std::size_t blocks : {1, 2, 17}) check(type, columns_of(type, blocks));
  for (const DType type : float_types)
    for (std::size_t columns = 1; columns < 50; ++columns) check(type, columns);
}

TEST_CASE("decode: every half and every MXFP4 exponent decodes exactly on every ISA") {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> expected(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i)
    expected[i] = static_cast<float>(reference::half_value(halves[i]));
  std::vector<std::byte> blocks(256 * 17);
  for (std::size_t e = 0; e < 256; ++e) {
    blocks[17 * e] = static_cast<std::byte>(e);
    for (std::size_t i = 1; i <= 16; ++i)
      blocks[17 * e + i] = static_cast<std::byte>(17 * (i - 1));  // both nibbles: each code once
  }
  std::vector<double> exact(256 * 32);
  reference::decode_row(DType::mxfp4, blocks.data(), exact.size(), exact.data());
  const std::vector<float> expected_fp4(exact.begin(), exact.end());
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<float> out(halves.size());
    table->decode_row[id_of(DType::f16)](reinterpret_cast<const std::byte*>(halves.data()),
                                         halves.size(), out.data());
    CHECK(first_difference(out, expected) == -1);
    std::vector<float> fp4(exact.size());
    table->decode_row[id_of(DType::mxfp4)](blocks.data(), fp4.size(), fp4.data());
    CHECK(first_difference(fp4, expected_fp4) == -1);
  }
}

}  // namespace millrace
