// Attention against its definition (plain loops, same bits) and against float64.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/dispatch.h"
#include "kernels/math.h"
#include "kernels/panel_kernels.h"
#include "runtime/base/limits.h"
#include "tests/kernels/values.h"

using namespace millrace;
using namespace millrace::testing;

static_assert(attention_part_positions == limits::attention_part);

namespace {

struct Shape {
  std::size_t heads, head_dim, value_dim, first, last;
  bool sinks;
};

// A filled cache and queries; half precision holds the same values as the floats.
struct World {
  Shape shape;
  std::size_t k_stride;
  std::size_t v_stride;
  float scale;
  std::size_t origin = 0;
  std::vector<float> q, sinks, k, v;
  std::vector<std::uint16_t> k_half, v_half;

  World(const Shape& wanted, std::uint64_t seed)
      : shape(wanted),
        k_stride(wanted.head_dim + 3),
        v_stride(wanted.value_dim + 1),
        scale(1 / std::sqrt(static_cast<float>(wanted.head_dim))) {
    Random random(seed);
    const std::size_t positions = shape.last + 1;
    q = random.floats(shape.heads * shape.head_dim, -3, 3);
    sinks = random.floats(shape.heads, -1, 4);
    // No padding after the last row: reading past it would fault in a guarded copy.
    fill(random, (positions - 1) * k_stride + shape.head_dim, k, k_half);
    fill(random, (positions - 1) * v_stride + shape.value_dim, v, v_half);
  }

  static void fill(Random& random, std::size_t count, std::vector<float>& floats,
                   std::vector<std::uint16_t>& halves) {
    halves.resize(count);
    floats.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const double value = std::round(random.uniform(-2, 2) * 1024);  // of at most 11 bits
      floats[i] = static_cast<float>(value / 1024);
    }
    supported_kernels().front()->to_f16(floats.data(), count, halves.data());
  }
};

float tree_sum(std::array<float, 16> acc) {
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) acc[i] += acc[i + half];
  }
  return acc[0];
}

float dot(const float* a, const float* b, std::size_t count) {
  std::array<float, 16> acc{};
  for (std::size_t i = 0; i < count; ++i) acc[i % 16] = std::fma(b[i], a[i], acc[i % 16]);
  return tree_sum(acc);
}

// The definition in kernels/attention-inl.h, word for word, for one head.
void attend_by_definition(const World& world, std::size_t head, float* out) {
  const Shape& shape = world.shape;
  float M = -infinity;
  float L = 0;
  std::vector<float> O(shape.value_dim);
  for (std::size_t begin = shape.first; begin <= shape.last;) {
    const std::size_t end = std::min((begin / 256 + 1) * 256, shape.last + 1);
    std::vector<float> p(end - begin);
    float m = -infinity;
    for (std::size_t j = begin; j < end; ++j) {
      p[j - begin] = world.scale * dot(&world.q[head * shape.head_dim],
                                       &world.k[j * world.k_stride], shape.head_dim);
      m = std::max(m, p[j - begin]);
    }
    std::array<float, 16> acc{};
    std::vector<float> o(shape.value_dim, 0.0f);
    for (std::size_t j = begin; j < end; ++j) {
      float& weight = p[j - begin];
      weight = exp_f32(weight - m);
      acc[j % 16] += weight;
      for (std::size_t c = 0; c < shape.value_dim; ++c) {
        o[c] = std::fma(weight, world.v[j * world.v_stride + c], o[c]);
      }
    }
    const float l = tree_sum(acc);
    if (begin == shape.first) {
      M = m;
      L = l;
      O = o;
    } else {
      const float new_max = std::max(M, m);
      const float a = exp_f32(M - new_max);
      const float b = exp_f32(m - new_max);
      L = std::fma(L, a, l * b);
      for (std::size_t c = 0; c < shape.value_dim; ++c) O[c] = std::fma(O[c], a, o[c] * b);
      M = new_max;
    }
    begin = end;
  }
  if (shape.sinks) {
    const float new_max = std::max(M, world.sinks[head]);
    const float a = exp_f32(M - new_max);
    L = std::fma(L, a, exp_f32(world.sinks[head] - new_max));
    for (float& value : O) value *= a;
  }
  for (std::size_t c = 0; c < shape.value_dim; ++c) out[c] = O[c] / L;
}

std::vector<float> attend_by_definition(const World& world) {
  std::vector<float> out(world.shape.heads * world.shape.value_dim);
  for (std::size_t head = 0; head < world.shape.heads; ++head) {
    attend_by_definition(world, head, &out[head * world.shape.value_dim]);
  }
  return out;
}

// All but where cache, output and scratch lie.
AttentionArgs arguments(const World& world) {
  AttentionArgs args{};
  args.q = world.q.data();
  args.heads = world.shape.heads;
  args.head_dim = world.shape.head_dim;
  args.value_dim = world.shape.value_dim;
  args.k_stride = world.k_stride;
  args.v_stride = world.v_stride;
  args.first = world.shape.first;
  args.last = world.shape.last;
  args.scale = world.scale;
  args.sinks = world.shape.sinks ? world.sinks.data() : nullptr;
  args.origin = world.origin;
  return args;
}

// Runs a table's function on guarded copies of the world's arrays.
std::vector<float> attend(const KernelTable& table, const World& world, bool half) {
  const Shape& shape = world.shape;
  GuardedArray<float> q(world.q);
  GuardedArray<float> sinks(world.sinks);
  GuardedArray<float> k(world.k);
  GuardedArray<float> v(world.v);
  GuardedArray<std::uint16_t> k_half(world.k_half);
  GuardedArray<std::uint16_t> v_half(world.v_half);
  GuardedArray<float> scratch(
      std::vector<float>(attention_scratch_floats(), std::numeric_limits<float>::quiet_NaN()));
  GuardedArray<float> out(
      std::vector<float>(shape.heads * shape.value_dim, std::numeric_limits<float>::quiet_NaN()));
  AttentionArgs args = arguments(world);
  args.q = q.data();
  args.k = half ? static_cast<const void*>(k_half.data()) : k.data();
  args.v = half ? static_cast<const void*>(v_half.data()) : v.data();
  if (shape.sinks) args.sinks = sinks.data();
  args.out = out.data();
  args.scratch = scratch.data();
  (half ? table.attention_f16 : table.attention_f32)(args);
  return {out.span().begin(), out.span().end()};
}

std::string name_of(const Shape& shape) {
  return std::to_string(shape.heads) + " heads of " + std::to_string(shape.head_dim) + "/" +
         std::to_string(shape.value_dim) + ", positions " + std::to_string(shape.first) + ".." +
         std::to_string(shape.last) + (shape.sinks ? ", sinks" : "");
}

void check_against_definition(const Shape& shape) {
  const World world(shape, 21);
  const std::vector<float> expected = attend_by_definition(world);
  for (const KernelTable* table : supported_kernels()) {
    for (const bool half : {false, true}) {
      INFO(table->name << (half ? " f16, " : " f32, ") << name_of(shape));
      REQUIRE(first_difference(expected, attend(*table, world, half)) == -1);
    }
  }
}

}  // namespace

TEST_CASE("attention: the definition's bits on every ISA, for every number of heads") {
  for (std::size_t heads = 1; heads <= 18; ++heads) {
    check_against_definition({heads, 32, 32, 0, 20, heads % 2 == 0});
  }
  check_against_definition({35, 16, 16, 3, 300, true});
}

TEST_CASE("attention: the definition's bits for odd, small and large dimensions") {
  for (const std::size_t dim :
       {1u, 2u, 15u, 16u, 17u, 24u, 31u, 33u, 48u, 64u, 80u, 96u, 100u, 112u}) {
    check_against_definition({3, dim, dim, 0, 37, false});
    check_against_definition({7, dim, dim + 9, 5, 22, true});
  }
  check_against_definition({5, 576, 512, 0, 40, false});
  check_against_definition({2, 192, 128, 0, 40, false});
  check_against_definition({1, 256, 271, 0, 18, false});
}

TEST_CASE("attention: the definition's bits for windows around the borders of parts") {
  for (const std::size_t last :
       {0u, 1u, 15u, 16u, 63u, 254u, 255u, 256u, 257u, 511u, 512u, 600u, 1030u}) {
    for (const std::size_t window : {1u, 2u, 17u, 128u, 256u, 257u, 2000u}) {
      const std::size_t first = last + 1 > window ? last + 1 - window : 0;
      check_against_definition({3, 20, 24, first, last, last % 2 == 0});
    }
  }
}

TEST_CASE("attention: further rows are parts behind the positions, with the same bits") {
  // Rows are keys and values at once; those from position 512 on are handed over as further ones,
  // which cuts them where the parts of the positions would be.
  for (const std::size_t last : {512u, 530u, 767u, 768u, 1100u}) {
    World world({19, 40, 40, 300, last, true}, 31);
    world.v = world.k;
    world.v_half = world.k_half;
    world.v_stride = world.k_stride;
    const std::vector<float> expected = attend_by_definition(world);
    std::vector<float> scratch(attention_scratch_floats());
    for (const KernelTable* table : supported_kernels()) {
      for (const bool half : {false, true}) {
        std::vector<float> out(expected.size(), std::numeric_limits<float>::quiet_NaN());
        AttentionArgs args = arguments(world);
        args.k = args.v = half ? static_cast<const void*>(world.k_half.data()) : world.k.data();
        args.more = half ? static_cast<const void*>(&world.k_half[512 * world.k_stride])
                         : &world.k[512 * world.k_stride];
        args.last = 511;
        args.more_count = last - 511;
        args.out = out.data();
        args.scratch = scratch.data();
        (half ? table->attention_f16 : table->attention_f32)(args);
        INFO(table->name << (half ? " f16, " : " f32, ") << name_of(world.shape));
        REQUIRE(first_difference(expected, out) == -1);
      }
    }
  }
}

TEST_CASE("attention: neighbouring tokens together have the bits of each alone") {
  struct Case {
    Shape shape;  // of the last token; `first` is that of the first
    std::size_t tokens, window;
  };
  for (const Case& c :
       {Case{{1, 16, 16, 0, 0, false}, 1, 0}, Case{{8, 128, 128, 0, 15, true}, 16, 0},
        Case{{3, 32, 20, 0, 700, false}, 5, 0}, Case{{4, 64, 72, 0, 260, true}, 9, 0},
        Case{{18, 16, 33, 0, 520, true}, 3, 0}, Case{{7, 48, 17, 250, 300, false}, 16, 40},
        Case{{2, 80, 96, 130, 256, true}, 2, 128}, Case{{5, 32, 32, 509, 518, false}, 8, 3},
        Case{{16, 32, 5, 0, 19, false}, 7, 14}}) {
    World world(c.shape, 35);
    const std::size_t q_stride = c.shape.heads * c.shape.head_dim + 3;
    const std::size_t out_stride = c.shape.heads * c.shape.value_dim + 5;
    const std::vector<float> queries = Random(36).floats(c.tokens * q_stride, -3, 3);
    for (const KernelTable* table : supported_kernels()) {
      const PanelKernels* const many = find_panel_kernels(*table);
      for (const bool half : {false, true}) {
        INFO(table->name << (half ? " f16, " : " f32, ") << c.tokens << " tokens, "
                         << name_of(c.shape));
        AttentionArgs args = arguments(world);
        args.k = half ? static_cast<const void*>(world.k_half.data()) : world.k.data();
        args.v = half ? static_cast<const void*>(world.v_half.data()) : world.v.data();
        std::vector<float> scratch(attention_run_floats(c.shape.head_dim, c.shape.value_dim),
                                   std::numeric_limits<float>::quiet_NaN());
        args.scratch = scratch.data();
        std::vector<float> expected(c.tokens * out_stride, -1.0f), out = expected;
        for (std::size_t t = 0; t < c.tokens; ++t) {
          AttentionArgs one = args;
          one.last = c.shape.last - (c.tokens - 1 - t);
          if (c.window > 0) one.first = one.last + 1 > c.window ? one.last + 1 - c.window : 0;
          if (t == 0) args.first = one.first;
          one.q = &queries[t * q_stride];
          one.out = &expected[t * out_stride];
          (half ? table->attention_f16 : table->attention_f32)(one);
        }
        if (many == nullptr) continue;
        GuardedArray<float> guarded(scratch);
        args.scratch = guarded.data();
        args.q = queries.data();
        args.last = c.shape.last - (c.tokens - 1);
        args.out = out.data();
        (half ? many->attention_f16 : many->attention_f32)(
            args, {c.tokens, q_stride, out_stride, c.window});
        REQUIRE(first_difference(expected, out) == -1);
      }
    }
  }
}

TEST_CASE("attention agrees with float64") {
  for (const bool sinks : {false, true}) {
    const World world({4, 128, 128, 0, 700, sinks}, 22);
    const std::vector<float> out = attend(*supported_kernels().back(), world, true);
    for (std::size_t head = 0; head < 4; ++head) {
      std::vector<double> weights(701);
      double sum = sinks ? std::exp(static_cast<double>(world.sinks[head])) : 0;
      for (std::size_t j = 0; j <= 700; ++j) {
        double score = 0;
        for (std::size_t i = 0; i < 128; ++i) {
          score += static_cast<double>(world.q[head * 128 + i]) *
                   static_cast<double>(world.k[j * world.k_stride + i]);
        }
        weights[j] = std::exp(score * static_cast<double>(world.scale));
        sum += weights[j];
      }
      for (std::size_t c = 0; c < 128; ++c) {
        double exact = 0;
        for (std::size_t j = 0; j <= 700; ++j) {
          exact += weights[j] / sum * static_cast<double>(world.v[j * world.v_stride + c]);
        }
        REQUIRE(std::fabs(static_cast<double>(out[head * 128 + c]) - exact) < 2e-6);
      }
    }
  }
}

TEST_CASE("attention: the heads of a call do not influence one another") {
  const World world({13, 40, 40, 100, 400, true}, 23);
  const std::vector<float> together = attend(*supported_kernels().back(), world, true);
  for (std::size_t head = 0; head < 13; ++head) {
    World alone = world;
    alone.shape.heads = 1;
    alone.q.assign(&world.q[head * 40], &world.q[head * 40] + 40);
    alone.sinks = {world.sinks[head]};
    const std::vector<float> out = attend(*supported_kernels().back(), alone, true);
    CHECK(first_difference(out, std::span(together).subspan(head * 40, 40)) == -1);
  }
}

TEST_CASE("attention: large scores do not overflow, and a NaN stays in its head") {
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    World world({2, 16, 16, 0, 300, false}, 24);
    for (std::size_t i = 0; i < 16; ++i) world.q[i] = 1e30f;
    const std::vector<float> out = attend(*table, world, false);
    CHECK(table->all_finite(out.data(), out.size()));
    world.q[3] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> with_nan = attend(*table, world, false);
    for (std::size_t c = 0; c < 16; ++c) CHECK(std::isnan(with_nan[c]));
    CHECK(table->all_finite(with_nan.data() + 16, 16));
  }
}

TEST_CASE("attention: rows may begin at any position up to the first visible one") {
  World world({3, 20, 24, 700, 1000, true}, 25);
  const std::vector<float> whole = attend(*supported_kernels().back(), world, true);
  for (const std::size_t origin : {1u, 256u, 699u, 700u}) {
    World later = world;
    later.k_half.erase(later.k_half.begin(),
                       later.k_half.begin() + static_cast<std::ptrdiff_t>(origin * world.k_stride));
    later.v_half.erase(later.v_half.begin(),
                       later.v_half.begin() + static_cast<std::ptrdiff_t>(origin * world.v_stride));
    later.origin = origin;
    for (const KernelTable* table : supported_kernels())
      CHECK(first_difference(whole, attend(*table, later, true)) == -1);
  }
}

TEST_CASE("attention: q8_0 rows count as the floats that their blocks decode to") {
  for (const Shape& shape : {Shape{5, 64, 96, 0, 300, true}, Shape{2, 80, 40, 3, 40, false},
                             Shape{17, 576, 512, 0, 9, false}}) {
    World world(shape, 26);
    // The rows as blocks, and the floats that these mean.
    const auto rounded = [&](std::vector<float>& values, std::size_t& stride, std::size_t columns) {
      const std::size_t blocks = (columns + 31) / 32;
      const std::size_t positions = shape.last + 1;
      std::vector<float> decoded(positions * blocks * 32);
      std::vector<std::byte> rows(positions * blocks * sizeof(BlockQ8_0));
      const KernelTable& scalar = *supported_kernels().front();
      for (std::size_t j = 0; j < positions; ++j) {
        std::byte* const row = &rows[j * blocks * sizeof(BlockQ8_0)];
        scalar.to_q8_0(&values[j * stride], columns, row);
        scalar.decode_row[static_cast<std::size_t>(DType::q8_0)](row, blocks * 32,
                                                                 &decoded[j * blocks * 32]);
      }
      values = decoded;
      stride = blocks * 32;
      return rows;
    };
    GuardedArray<std::byte> k(rounded(world.k, world.k_stride, shape.head_dim));
    GuardedArray<std::byte> v(rounded(world.v, world.v_stride, shape.value_dim));
    const std::vector<float> expected = attend_by_definition(world);
    for (const KernelTable* table : supported_kernels()) {
      INFO(table->name << ", " << name_of(shape));
      std::vector<float> scratch(attention_scratch_floats());
      std::vector<float> out(shape.heads * shape.value_dim);
      AttentionArgs args = arguments(world);
      args.k = k.data();
      args.v = v.data();
      args.out = out.data();
      args.scratch = scratch.data();
      table->attention_q8_0(args);
      CHECK(first_difference(expected, out) == -1);
    }
  }
}
