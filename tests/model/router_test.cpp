// The router's choice against a plain computation in double.
#include "model/router.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/kernels/values.h"

using namespace millrace;
using millrace::testing::Random;

namespace {

struct Choice {
  std::vector<ExpertIndex> experts;
  std::vector<float> weights;
};

Choice choose(const RouterRule& rule, std::vector<float> logits) {
  Choice choice{std::vector<ExpertIndex>(rule.used), std::vector<float>(rule.used)};
  route(*supported_kernels().back(), rule, logits.data(), choice.experts.data(),
        choice.weights.data());
  return choice;
}

// Softmax over all, the best by stable sort, weights over their sum.
void check_against_double(const RouterRule& rule, const std::vector<float>& logits) {
  const Choice choice = choose(rule, logits);
  std::vector<double> p(logits.begin(), logits.end());
  const double most = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = std::exp(x - most);
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= all;
  std::vector<ExpertIndex> order(p.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](ExpertIndex a, ExpertIndex b) { return p[a] > p[b]; });
  double chosen_sum = 0;
  for (std::size_t k = 0; k < rule.used; ++k) chosen_sum += p[order[k]];
  for (std::size_t k = 0; k < rule.used; ++k) {
    REQUIRE(choice.experts[k] == order[k]);
    const double weight = p[order[k]] / (rule.normalize ? chosen_sum : 1) * double{rule.scale};
    REQUIRE(choice.weights[k] == Approx(weight).epsilon(1e-6));
  }
}

}  // namespace

TEST_CASE("router: choice and weights are those of a computation in double") {
  Random random(11);
  for (const std::size_t experts : {1, 2, 8, 60, 128, 512}) {
    for (const std::size_t used : {1, 2, 8, 32}) {
      if (used > experts) continue;
      for (const bool normalize : {false, true}) {
        const RouterRule rule{.normalize = normalize,
                              .scale = normalize ? 2.5F : 1.0F,
                              .experts = experts,
                              .used = used};
        check_against_double(rule, random.floats(experts, -8, 8));
      }
    }
  }
}

TEST_CASE("router: of equal scores the lower ids win, in ascending order") {
  const RouterRule rule{.normalize = true, .experts = 6, .used = 4};
  CHECK(choose(rule, {1, 1, 1, 1, 1, 1}).experts == std::vector<ExpertIndex>{0, 1, 2, 3});
  CHECK(choose(rule, {0, 3, 1, 3, 1, 1}).experts == std::vector<ExpertIndex>{1, 3, 2, 4});
  CHECK(choose(rule, {5, 4, 3, 2, 1, 0}).experts == std::vector<ExpertIndex>{0, 1, 2, 3});
  CHECK(choose(rule, {0, 1, 2, 3, 4, 5}).experts == std::vector<ExpertIndex>{5, 4, 3, 2});
  for (const float weight : choose(rule, {1, 1, 1, 1, 1, 1}).weights) CHECK(weight == 0.25F);
}

TEST_CASE("router: a sum of chosen weights below the smallest normal half float counts as that") {
  const RouterRule rule{.normalize = true, .experts = 20000, .used = 1};
  CHECK(choose(rule, std::vector<float>(20000, 0)).weights[0] == Approx(5e-5 / 0x1p-14));
  // Weights that underflow stay zero.
  const RouterRule three{.normalize = true, .experts = 3, .used = 3};
  CHECK(choose(three, {0, -200, -200}).weights == std::vector<float>{1, 0, 0});
}

TEST_CASE("router: the scale multiplies last") {
  RouterRule rule{.normalize = true, .scale = 3, .experts = 2, .used = 2};
  CHECK(choose(rule, {0, 0}).weights == std::vector<float>{1.5F, 1.5F});
  rule.normalize = false;
  CHECK(choose(rule, {0, 0}).weights == std::vector<float>{1.5F, 1.5F});
}

TEST_CASE("router: every instruction set chooses the same bits") {
  Random random(5);
  const RouterRule rule{.normalize = true, .experts = 100, .used = 8};
  const std::vector<float> logits = random.floats(100, -4, 4);
  const Choice expected = choose(rule, logits);
  for (const KernelTable* kernels : supported_kernels()) {
    std::vector<float> scores = logits;
    Choice choice{std::vector<ExpertIndex>(8), std::vector<float>(8)};
    route(*kernels, rule, scores.data(), choice.experts.data(), choice.weights.data());
    CHECK(choice.experts == expected.experts);
    CHECK(choice.weights == expected.weights);
  }
}

TEST_CASE("router: sigmoid weights are those of the scores without the selection bias") {
  const std::vector<float> bias = {0, 0, 5, -5, 0, 0};
  RouterRule rule{.gating = Gating::sigmoid, .experts = 6, .used = 3};
  const std::vector<float> logits = {1, 2, -3, 4, 0.5F, -1};
  CHECK(choose(rule, logits).experts == std::vector<ExpertIndex>{3, 1, 0});
  rule.selection_bias = bias.data();
  const Choice biased = choose(rule, logits);
  CHECK(biased.experts == std::vector<ExpertIndex>{2, 1, 0});
  for (std::size_t k = 0; k < 3; ++k)
    CHECK(biased.weights[k] ==
          Approx(1 / (1 + std::exp(-static_cast<double>(logits[biased.experts[k]])))));
  rule.normalize = true;
  rule.scale = 2.5F;
  const Choice scaled = choose(rule, logits);
  CHECK(double{scaled.weights[0]} + double{scaled.weights[1]} + double{scaled.weights[2]} ==
        Approx(2.5));
}

TEST_CASE("router: square roots of softplus, or a choice that is given") {
  RouterRule rule{.gating = Gating::sqrt_softplus, .experts = 4, .used = 2};
  const std::vector<float> logits = {-2, 0, 3, -40};
  const Choice best = choose(rule, logits);
  CHECK(best.experts == std::vector<ExpertIndex>{2, 1});
  CHECK(best.weights[0] == Approx(1.7460204).epsilon(1e-6));
  CHECK(best.weights[1] == Approx(0.8325546).epsilon(1e-6));
  const std::vector<ExpertIndex> table = {3, 0};
  rule.given = table.data();
  const Choice given = choose(rule, logits);
  CHECK(given.experts == table);
  CHECK(given.weights[0] == Approx(std::exp(-20.0)).epsilon(1e-6));
  CHECK(given.weights[1] == Approx(0.3562696).epsilon(1e-6));
  rule.normalize = true;
  rule.scale = 1.5F;
  CHECK(choose(rule, logits).weights[1] == Approx(1.5).epsilon(1e-6));
}

TEST_CASE("router: softmax over the chosen logits, whatever the others are") {
  const RouterRule rule{.gating = Gating::softmax_chosen, .experts = 5, .used = 2};
  const Choice choice = choose(rule, {1, 50, 2, 49, -7});
  CHECK(choice.experts == std::vector<ExpertIndex>{1, 3});
  CHECK(choice.weights[0] == Approx(1 / (1 + std::exp(-1.0))));
  CHECK(choice.weights[1] == Approx(1 / (1 + std::exp(1.0))));
}

TEST_CASE("router: only experts of the groups with the two best scores are chosen") {
  // Sums of the two best: 0.9 + 0.1, 0.6 + 0.6, 0.7 + 0.2, 0.5 + 0.5 in logits that sigmoid keeps
  // in this order; the single best expert's group is left out.
  RouterRule rule{
      .gating = Gating::sigmoid, .experts = 8, .used = 3, .groups = 4, .groups_used = 2};
  const std::vector<float> logits = {2.0F, -8, 1.5F, 1.4F, 1.6F, 0.1F, 1.2F, 1.1F};
  const Choice choice = choose(rule, logits);
  CHECK(choice.experts == std::vector<ExpertIndex>{2, 3, 6});
  rule.groups_used = 4;
  CHECK(choose(rule, logits).experts == std::vector<ExpertIndex>{0, 4, 2});
  rule.groups = rule.groups_used = 1;
  CHECK(choose(rule, logits).experts == std::vector<ExpertIndex>{0, 4, 2});
}

TEST_CASE("router: groups by their best score alone, as a computation in double has it") {
  RouterRule rule{
      .scale = 16, .experts = 40, .used = 6, .groups = 8, .groups_used = 3, .group_by_best = true};
  Random random(23);
  std::size_t others = 0;
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> logits = random.floats(rule.experts, -6, 6);
    std::vector<double> p(logits.begin(), logits.end());
    for (double& x : p) x = std::exp(x);
    const double all = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= all;
    const std::size_t size = rule.experts / rule.groups;
    std::vector<std::size_t> groups(rule.groups);
    std::iota(groups.begin(), groups.end(), 0u);
    const auto best = [&](std::size_t group) {
      return *std::max_element(p.begin() + static_cast<std::ptrdiff_t>(group * size),
                               p.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
    };
    std::stable_sort(groups.begin(), groups.end(),
                     [&](std::size_t a, std::size_t b) { return best(a) > best(b); });
    std::vector<ExpertIndex> order;
    for (std::size_t g = 0; g < rule.groups_used; ++g)
      for (std::size_t id = groups[g] * size; id < (groups[g] + 1) * size; ++id)
        order.push_back(static_cast<ExpertIndex>(id));
    std::sort(order.begin(), order.end(),
              [&](ExpertIndex a, ExpertIndex b) { return p[a] > p[b]; });
    const Choice choice = choose(rule, logits);
    for (std::size_t k = 0; k < rule.used; ++k) {
      REQUIRE(choice.experts[k] == order[k]);
      REQUIRE(choice.weights[k] == Approx(16 * p[order[k]]).epsilon(1e-6));
    }
    RouterRule by_two = rule;
    by_two.group_by_best = false;
    others += choose(by_two, logits).experts == choice.experts ? 0 : 1;
  }
  CHECK(others > 20);  // the other rule chooses others: the test tells them apart
}

TEST_CASE("router: of equal groups the lower ones stay, and ids stay in order") {
  const RouterRule rule{
      .gating = Gating::sigmoid, .experts = 12, .used = 4, .groups = 6, .groups_used = 2};
  CHECK(choose(rule, std::vector<float>(12, 0.5F)).experts == std::vector<ExpertIndex>{0, 1, 2, 3});
  // A bias can bring a group in.
  std::vector<float> bias(12, 0);
  bias[10] = bias[11] = 1;
  RouterRule biased = rule;
  biased.selection_bias = bias.data();
  CHECK(choose(biased, std::vector<float>(12, 0.5F)).experts ==
        std::vector<ExpertIndex>{10, 11, 0, 1});
}

TEST_CASE("router: a group of one expert counts by that one") {
  const RouterRule rule{
      .gating = Gating::sigmoid, .experts = 3, .used = 2, .groups = 3, .groups_used = 2};
  CHECK(choose(rule, {1, 3, 2}).experts == std::vector<ExpertIndex>{1, 2});
}
