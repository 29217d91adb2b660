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

// One block of bytes (37 i + 11) mod 256 with its scale field set, decoded: the element sums and
// samples that the format's specification lists.
struct Vector {
  DType type;
  std::vector<unsigned> scale_bytes;
  double sum, weighted_sum;
  float at0, at1, at17, at31;
};

}  // namespace

TEST_CASE("decode: the oracle's blocks decode to the oracle's bits on every ISA") {
  for (const DType type : block_types) {
    const std::string name = dtype_info(type).name;
    const auto raw = read_oracle(name + ".bin");
    const auto values = read_oracle(name + ".f32");
    REQUIRE(raw.size() == 16 * dtype_info(type).block_bytes);
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

TEST_CASE("decode: the specification's test vectors hold on every ISA") {
  const Vector vectors[] = {
      {DType::q4_0, {0x00, 0x2c}, -1.3125, -32.375, -0.1875f, 0.125f, -0.0625f, 0.0f},
      {DType::q8_0, {0x00, 0x2c}, -11.0, -505.0, 5.3125f, 7.625f, -3.375f, -3.0f},
      {DType::mxfp4, {125}, 3.125, 79.75, 0.0f, 0.75f, 0.75f, 0.75f},
      {DType::q4_1, {0, 0x2c, 0, 0x28}, 16.3125, 265.4375, 0.96875f, 0.28125f, 0.78125f, 0.78125f},
      {DType::q5_0, {0, 0x2c}, 0.9375, 7.0, 0.5625f, -0.125f, 0.0f, 0.0625f},
      {DType::q5_1, {0, 0x2c, 0, 0x28}, 32.5625, 510.3125, 1.21875f, 1.53125f, 0.34375f, 0.34375f},
      {DType::iq4_nl, {0, 0x2c}, -16.0625, -432.4375, -2.1875f, 1.5625f, -0.625f, 0.0625f},
  };
  for (const Vector& vector : vectors) {
    std::vector<std::byte> block(dtype_info(vector.type).block_bytes);
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(37 * i + 11);
    for (std::size_t i = 0; i < vector.scale_bytes.size(); ++i)
      block[i] = static_cast<std::byte>(vector.scale_bytes[i]);
    for (const KernelTable* table : supported_kernels()) {
      float x[32];
      table->decode_row[id_of(vector.type)](block.data(), 32, x);
      double sum = 0, weighted = 0;
      for (int i = 0; i < 32; ++i) {
        sum += x[i];
        weighted += (i + 1) * static_cast<double>(x[i]);
      }
      INFO(table->name << " " << dtype_info(vector.type).name);
      CHECK(sum == vector.sum);
      CHECK(weighted == vector.weighted_sum);
      CHECK((x[0] == vector.at0 && x[1] == vector.at1));
      CHECK((x[17] == vector.at17 && x[31] == vector.at31));
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
  for (const DType type : block_types)
    for (const std::size_t columns : {32, 64, 544}) check(type, columns);
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
