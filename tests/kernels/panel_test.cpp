#include <catch2/catch.hpp>
#include <string>

#include "kernels/dispatch.h"
#include "kernels/panel_kernels.h"
#include "tests/kernels/panel_cases.h"
#include "tests/kernels/weight_cases.h"

namespace millrace {
namespace {

using namespace testing;

bool has_panels(const KernelTable& table, DType type) {
  const PanelKernels* const panels = find_panel_kernels(table);
  return panels != nullptr &&
         (panels->q8[id_of(type)] != nullptr || panels->q8_super[id_of(type)] != nullptr);
}

// Token by token, as decode computes them.
std::vector<float> one_by_one(const KernelTable& table, Weights& w, const Activations& x) {
  std::vector<float> y(x.tokens * w.rows);
  for (std::size_t t = 0; t < x.tokens; ++t) {
    if (is_super(w.type)) {
      Q8SuperBatch batch = x.super_view();
      batch.q += t * batch.q_stride;
      batch.scale += t * batch.block_stride;
      batch.sum += t * batch.q_stride / 16;
      table.matmul_q8_super[id_of(w.type)](w.view(), batch, 1, y.data() + t * w.rows, w.rows);
    } else {
      Q8Batch batch = x.view();
      batch.q += t * batch.q_stride;
      batch.scale += t * batch.block_stride;
      batch.sum += t * batch.block_stride;
      table.matmul_q8[id_of(w.type)](w.view(), batch, 1, y.data() + t * w.rows, w.rows);
    }
  }
  return y;
}

std::vector<float> by_panels(const KernelTable& table, DType type, const WeightRows& weights,
                             const Activations& x, const std::int8_t* q = nullptr) {
  const PanelKernels& panels = *find_panel_kernels(table);
  const auto run = [&](auto panel_matmul, auto matmul, auto batch) {
    if (q != nullptr) batch.q = q;
    return testing::by_panels(panel_matmul, matmul, weights, batch, x.tokens);
  };
  if (is_super(type))
    return run(panels.q8_super[id_of(type)], table.matmul_q8_super[id_of(type)], x.super_view());
  return run(panels.q8[id_of(type)], table.matmul_q8[id_of(type)], x.view());
}

void check(Weights& w, const Activations& x) {
  const std::vector<float> expected = one_by_one(*supported_kernels().front(), w, x);
  for (const KernelTable* table : supported_kernels()) {
    if (!has_panels(*table, w.type)) continue;
    INFO(table->name << " " << dtype_info(w.type).name << " " << w.rows << " x " << w.columns
                     << ", tokens " << x.tokens);
    CHECK(first_difference(by_panels(*table, w.type, w.view(), x), expected) == -1);
  }
}

void check_random(Weights& w, std::size_t tokens, std::uint64_t seed) {
  check(w, Activations(w.type, Random(seed).floats(tokens * w.columns), tokens, w.columns));
}

// Unrounded activations: as the products of single tokens.
void check_floats(Weights& w, const std::vector<float>& x, std::size_t tokens) {
  const std::size_t id = id_of(w.type);
  const GuardedArray<float> guarded(x);
  std::vector<float> expected(tokens * w.rows);
  for (std::size_t t = 0; t < tokens; ++t)
    supported_kernels().front()->matmul_f32[id](w.view(), {x.data() + t * w.columns, w.columns}, 1,
                                                expected.data() + t * w.rows, w.rows);
  for (const KernelTable* table : supported_kernels()) {
    const PanelKernels* const panels = find_panel_kernels(*table);
    if (panels == nullptr) continue;
    INFO(table->name << " " << dtype_info(w.type).name << " " << w.rows << " x " << w.columns
                     << ", tokens " << tokens);
    REQUIRE(panels->f32[id] != nullptr);
    const F32Batch batch{guarded.span().data(), w.columns};
    CHECK(first_difference(
              testing::by_panels(panels->f32[id], table->matmul_f32[id], w.view(), batch, tokens),
              expected) == -1);
  }
}

}  // namespace

TEST_CASE("panels: all types that meet rounded activations have them, but for those in tiles") {
  for (const KernelTable* table : supported_kernels()) {
    for (const DType type : quantized_types()) {
      INFO(table->name << " " << dtype_info(type).name);
      if (std::string(table->name) != "amx" || is_super(type)) CHECK(has_panels(*table, type));
    }
  }
}

TEST_CASE("panels: every number of tokens gives the bits of one token at a time") {
  std::uint64_t seed = 1;
  for (const DType type : quantized_types()) {
    Weights w(type, 40, columns_of(type, 19), Scales::ordinary, ++seed);
    for (std::size_t tokens = 1; tokens <= 70; tokens += tokens < 20 ? 1 : 9)
      check_random(w, tokens, ++seed);
  }
}

TEST_CASE("panels: tokens that do not fit beside the panels come in portions of the same bits") {
  std::uint64_t seed = 500;
  for (const DType type : {DType::mxfp4, DType::q5_1, DType::nvfp4, DType::q4_k, DType::q6_k}) {
    Weights w(type, 32, columns_of(type, 19), Scales::ordinary, ++seed);
    for (const std::size_t tokens : {95, 131, 211}) check_random(w, tokens, ++seed);
  }
}

TEST_CASE("panels: every number of rows and of blocks gives the bits of one token at a time") {
  std::uint64_t seed = 1000;
  for (const DType type : quantized_types()) {
    for (const std::size_t rows : {1, 15, 16, 17, 31, 32, 33, 48, 63, 80}) {
      Weights w(type, rows, columns_of(type, 21), Scales::ordinary, ++seed);
      check_random(w, 7, ++seed);
    }
    for (const std::size_t blocks : {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 48, 70}) {
      Weights w(type, 32, columns_of(type, blocks), Scales::ordinary, ++seed);
      check_random(w, 8, ++seed);
    }
  }
}

TEST_CASE("panels: odd scales, activations and codes give the bits of one token at a time") {
  std::uint64_t seed = 2000;
  for (const DType type : quantized_types()) {
    for (const Scales scales : {Scales::denormal, Scales::extreme}) {
      Weights w(type, 32, columns_of(type, 37), scales, ++seed);
      check_random(w, 9, ++seed);
    }
    Weights w(type, 32, columns_of(type, 18), Scales::ordinary, ++seed);
    for (const double magnitude : {0.0, 1e30, 1e-28, 1e-42})
      check(w, Activations(type, Random(++seed).floats(7 * w.columns, -magnitude, magnitude), 7,
                           w.columns));
    for (const unsigned code : {0x80u, 0x7fu, 0xffu, 0x00u, 0x77u}) {
      for (std::size_t i = 0; i < w.rows * w.row_bytes; ++i)
        if (!is_scale_byte(type, i % dtype_info(type).block_bytes))
          w.bytes.data()[i] = static_cast<std::byte>(code);
      for (const float value : {2.0f, -2.0f})  // every q is 127 or -127
        check(w, Activations(type, std::vector<float>(6 * w.columns, value), 6, w.columns));
    }
  }
}

TEST_CASE("panels: weights and activations need no alignment, and rows may have gaps") {
  std::uint64_t seed = 3000;
  for (const DType type : quantized_types()) {
    Weights w(type, 32, columns_of(type, 19), Scales::ordinary, ++seed);
    const Activations x(type, Random(++seed).floats(7 * w.columns), 7, w.columns);
    const std::vector<float> expected = one_by_one(*supported_kernels().front(), w, x);
    for (const std::size_t shift : {1, 14, 27, 63}) {
      const std::size_t row_bytes = w.row_bytes + shift;
      std::vector<std::byte> weights(shift + w.rows * row_bytes);
      for (std::size_t r = 0; r < w.rows; ++r)
        std::memcpy(weights.data() + shift + r * row_bytes, w.row(r), w.row_bytes);
      std::vector<std::int8_t> q(shift + x.q.size());
      std::copy(x.q.begin(), x.q.end(), q.begin() + static_cast<std::ptrdiff_t>(shift));
      for (const KernelTable* table : supported_kernels()) {
        if (!has_panels(*table, type)) continue;
        INFO(table->name << " " << dtype_info(type).name << " shift " << shift);
        CHECK(first_difference(
                  by_panels(*table, type, {weights.data() + shift, row_bytes, w.rows, w.columns}, x,
                            q.data() + shift),
                  expected) == -1);
      }
    }
  }
}

TEST_CASE("panels: floats of every size give the bits of one token at a time") {
  std::uint64_t seed = 4000;
  const auto random = [&seed](std::size_t count) { return Random(++seed).floats(count); };
  for (const DType type : float_types) {
    for (std::size_t columns = 1; columns <= 150; columns += columns < 35 ? 1 : 23) {
      Weights w(type, 33, columns, Scales::ordinary, ++seed);
      for (const std::size_t tokens : {1, 7}) check_floats(w, random(tokens * columns), tokens);
    }
    Weights w(type, 48, 777, Scales::ordinary, ++seed);
    for (std::size_t tokens = 1; tokens <= 90; tokens += tokens < 30 ? 1 : 19)
      check_floats(w, random(tokens * w.columns), tokens);
    for (const std::size_t rows : {1, 15, 16, 17, 31, 32, 63, 80}) {
      Weights other(type, rows, 530, Scales::ordinary, ++seed);
      check_floats(other, random(8 * 530), 8);
    }
  }
}

TEST_CASE("panels: odd floats on both sides give the bits of one token at a time") {
  std::uint64_t seed = 5000;
  for (const DType type : float_types) {
    for (const Scales scales : {Scales::denormal, Scales::extreme}) {
      for (const std::size_t columns : {3, 77, 128, 259}) {
        Weights w(type, 32, columns, scales, ++seed);
        check_floats(w, Random(++seed).floats(9 * columns), 9);
        check_floats(w, Random(++seed).floats(9 * columns, -1e-37, 0), 9);  // sums of -0, too
        Random random(++seed);
        std::vector<float> odd(7 * columns);
        for (float& x : odd) x = any_float(random, Scales::extreme);
        check_floats(w, odd, 7);
      }
    }
  }
}

}  // namespace millrace
