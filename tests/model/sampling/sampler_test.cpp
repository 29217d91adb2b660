#include "model/sampling/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/dispatch.h"
#include "model/sampling/log_probability.h"
#include "tests/support/allocation_meter.h"

using namespace millrace;
using millrace::testing::allocations;
using millrace::testing::reset_allocations;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
const std::vector<float> four = {2, 1, 0, -1};  // softmax 0.643914, 0.236883, 0.087144, 0.032059

// Nothing but the draw.
SamplingOptions plain() {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  options.seed = 1;
  return options;
}

Sampler make(const SamplingOptions& options, std::size_t vocabulary = 4) {
  Result<Sampler> made = Sampler::create(options, vocabulary);
  if (!made) FAIL(made.error().what);
  return std::move(made).value();
}

TokenId sample(Sampler& sampler, std::span<const float> logits,
               std::span<const TokenId> history = {}, std::uint64_t position = 0) {
  Result<TokenId> token = sampler.sample(logits, history, position);
  if (!token) FAIL(token.error().what);
  return token.value();
}

// The ids that are left after truncation, ascending.
std::vector<TokenId> left_ids(const SamplingOptions& options,
                              const std::vector<float>& logits = four) {
  Sampler sampler = make(options, logits.size());
  sample(sampler, logits);
  std::vector<TokenId> ids;
  for (const Sampler::Candidate& candidate : sampler.candidates()) ids.push_back(candidate.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

using Ids = std::vector<TokenId>;

}  // namespace

TEST_CASE("sampler: top-p keeps the shortest list of best tokens that reaches it") {
  SamplingOptions options = plain();
  const auto with = [&](float top_p) {
    options.top_p = top_p;
    return left_ids(options);
  };
  CHECK(with(0.8F) == Ids{0, 1});
  CHECK(with(0.6F) == Ids{0});
  CHECK(with(0.95F) == Ids{0, 1, 2});
  CHECK(with(1.0F) == Ids{0, 1, 2, 3});
  CHECK(with(1e-6F) == Ids{0});
}

TEST_CASE("sampler: min-p keeps what is likely enough beside the best") {
  SamplingOptions options = plain();
  options.min_p = 0.1F;
  CHECK(left_ids(options) == Ids{0, 1, 2});
  options.min_p = 0.2F;
  CHECK(left_ids(options) == Ids{0, 1});
  options.min_p = 1.0F;
  CHECK(left_ids(options) == Ids{0});
}

TEST_CASE("sampler: top-k keeps the largest, ties go to the lower id") {
  SamplingOptions options = plain();
  options.top_k = 2;
  CHECK(left_ids(options) == Ids{0, 1});
  CHECK(left_ids(options, {1, 3, 3, 3, 0}) == Ids{1, 2});
  options.top_k = 99;
  CHECK(left_ids(options) == Ids{0, 1, 2, 3});
}

TEST_CASE("sampler: temperature comes after truncation") {
  SamplingOptions options = plain();
  options.top_k = 2;
  options.temperature = 0.5F;
  Sampler sampler = make(options);
  sample(sampler, four);
  const auto left = sampler.candidates();
  REQUIRE(left.size() == 2);
  CHECK(left[0].logit == 4);
  CHECK(left[1].logit == 2);
  const float total = left[0].weight + left[1].weight;
  CHECK(left[0].weight / total == Approx(0.880797).margin(1e-6));
  CHECK(left[1].weight / total == Approx(0.119203).margin(1e-6));

  // A flat temperature does not let more tokens through top-p.
  options = plain();
  options.top_p = 0.6F;
  options.temperature = 100;
  CHECK(left_ids(options) == Ids{0});
}

TEST_CASE("sampler: penalties change the logits of tokens in the window only") {
  SamplingOptions options = plain();
  options.repeat_penalty = 1.1F;
  options.frequency_penalty = 0.5F;
  options.presence_penalty = 0.25F;
  Sampler sampler = make(options);
  sample(sampler, four, Ids{0, 0, 3});
  std::map<TokenId, float> logits;
  for (const Sampler::Candidate& candidate : sampler.candidates())
    logits[candidate.id] = candidate.logit;
  CHECK(logits[0] == Approx(0.568182).margin(1e-6));
  CHECK(logits[1] == 1);
  CHECK(logits[2] == 0);
  CHECK(logits[3] == Approx(-1.85).margin(1e-6));
}

TEST_CASE("sampler: the penalty window is the last tokens, all of them, or none") {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.presence_penalty = 5;
  const Ids history = {0, 1, 2};
  const auto choice = [&](std::int32_t last_n) {
    options.repeat_last_n = last_n;
    Sampler sampler = make(options);
    return sample(sampler, four, history);
  };
  CHECK(choice(0) == 0);
  CHECK(choice(1) == 0);  // only 2 is in the window
  CHECK(choice(2) == 0);  // 1 and 2
  CHECK(choice(3) == 3);
  CHECK(choice(64) == 3);
  CHECK(choice(-1) == 3);
}

TEST_CASE("sampler: greedy takes the largest, the lower id of equals, whatever the seed") {
  SamplingOptions options;  // the defaults of the other options
  options.temperature = 0;
  Sampler sampler = make(options, 5);
  CHECK(sample(sampler, std::vector<float>{0, 3, -2, 3, 1}) == 1);
  CHECK(sample(sampler, std::vector<float>{-5, -4, -infinity, -4, -9}) == 1);
  options.temperature = -1;
  sampler = make(options, 5);
  CHECK(sample(sampler, std::vector<float>{0, 1, 2, 3, 4}) == 4);
}

TEST_CASE("sampler: a bias of minus infinity bans, others add up") {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.biases = {{0, -infinity}, {2, 1}, {2, 0.5F}};
  Sampler sampler = make(options);
  CHECK(sample(sampler, four) == 2);
  options.temperature = 1;
  CHECK(left_ids(options) == Ids{1, 2, 3});
}

TEST_CASE("sampler: broken logits are an error, not a token") {
  for (const float temperature : {0.0F, 1.0F}) {
    SamplingOptions options = plain();
    options.temperature = temperature;
    Sampler sampler = make(options);
    const auto fails = [&](const std::vector<float>& logits) {
      const Result<TokenId> token = sampler.sample(logits, {}, 0);
      return !token.has_value() && token.error().code == ErrorCode::format;
    };
    CHECK(fails({0, std::nanf(""), 1, 2}));
    CHECK(fails({std::nanf(""), 5, 1, 2}));
    CHECK(fails({0, 1, 2, infinity}));
    CHECK(fails({-infinity, -infinity, -infinity, -infinity}));
    CHECK(sample(sampler, std::vector<float>{-infinity, -infinity, -7, -infinity}) == 2);
  }
}

TEST_CASE("sampler: extreme temperatures give a token and no overflow") {
  SamplingOptions options = plain();
  options.temperature = 1e-38F;
  Sampler sampler = make(options);
  for (std::uint64_t position = 0; position < 50; ++position)
    CHECK(sample(sampler, std::vector<float>{1e30F, -1e30F, 1e30F, 0}, {}, position) % 2 == 0);
  options.temperature = 1e38F;
  sampler = make(options);
  std::map<TokenId, int> counts;
  for (std::uint64_t position = 0; position < 400; ++position)
    ++counts[sample(sampler, four, {}, position)];
  for (TokenId id = 0; id < 4; ++id) CHECK(counts[id] > 60);
}

TEST_CASE("sampler: tokens are drawn as often as they are likely") {
  Sampler sampler = make(plain());
  std::map<TokenId, int> counts;
  constexpr int draws = 20000;
  for (std::uint64_t position = 0; position < draws; ++position)
    ++counts[sample(sampler, four, {}, position)];
  CHECK(counts[0] == Approx(0.643914 * draws).margin(350));
  CHECK(counts[1] == Approx(0.236883 * draws).margin(300));
  CHECK(counts[2] == Approx(0.087144 * draws).margin(200));
  CHECK(counts[3] == Approx(0.032059 * draws).margin(130));
}

TEST_CASE("sampler: a choice can be asked for again in any order") {
  SamplingOptions options;
  options.seed = 99;
  Sampler sampler = make(options);
  Ids forward;
  for (std::uint64_t position = 0; position < 64; ++position)
    forward.push_back(sample(sampler, four, forward, position));
  CHECK(std::count(forward.begin(), forward.end(), forward[0]) < 64);
  for (std::size_t position = 64; position-- > 0;)
    CHECK(sample(sampler, four, std::span(forward).first(position), position) == forward[position]);
  options.seed = 100;
  Sampler other = make(options);
  Ids different;
  for (std::uint64_t position = 0; position < 64; ++position)
    different.push_back(sample(other, four, different, position));
  CHECK(different != forward);
}

TEST_CASE("sampler: the seed in use is known") {
  SamplingOptions options;
  CHECK(make(options).seed() != random_seed);
  options.seed = 5;
  CHECK(make(options).seed() == 5);
}

TEST_CASE("sampler: a large vocabulary is truncated as a sorted list would be") {
  std::vector<float> logits(5000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(uniform_at(3, i, 0) * 8);
  std::vector<std::size_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  double sum = 0;
  std::size_t needed = 0;
  while (sum < 0.9 * total) sum += std::exp(static_cast<double>(logits[order[needed++]]));

  SamplingOptions options = plain();
  options.top_p = 0.9F;
  Ids expected;
  for (std::size_t i = 0; i < needed; ++i) expected.push_back(static_cast<TokenId>(order[i]));
  std::sort(expected.begin(), expected.end());
  CHECK(needed > 300);  // several steps of sorting
  CHECK(left_ids(options, logits) == expected);
}

TEST_CASE("sampler: every instruction set's exp draws the same tokens") {
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(uniform_at(8, i, 0) * 200);
  SamplingOptions options = plain();
  options.temperature = 20;
  Sampler scalar = make(options, logits.size());
  std::vector<float> wanted;
  sample(scalar, logits);
  for (const Sampler::Candidate& candidate : scalar.candidates())
    wanted.push_back(candidate.weight);
  for (const KernelTable* kernels : supported_kernels()) {
    INFO(kernels->name);
    Sampler sampler = std::move(Sampler::create(options, logits.size(), kernels->exp)).value();
    for (std::uint64_t position = 0; position < 20; ++position)
      CHECK(sample(sampler, logits, {}, position) == sample(scalar, logits, {}, position));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      CHECK(sampler.candidates()[i].weight == wanted[i]);
  }
}

TEST_CASE("sampler: steady sampling allocates nothing") {
  SamplingOptions options;
  options.repeat_penalty = 1.1F;
  options.seed = 4;
  std::vector<float> logits(3000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(uniform_at(5, i, 0) * 5);
  const Ids history(100, 7);
  Sampler sampler = make(options, logits.size());
  TokenId last = 0;
  reset_allocations();
  for (std::uint64_t position = 0; position < 20; ++position)
    last = sampler.sample(logits, history, position).value();
  CHECK(allocations().calls == 0);
  CHECK(last >= 0);
}

TEST_CASE("sampler: senseless options are refused by the name of their flag") {
  const auto refusal = [](auto change) {
    SamplingOptions options;
    change(options);
    const Result<Sampler> made = Sampler::create(options, 4);
    if (made) return std::string("accepted");
    CHECK(made.error().code == ErrorCode::usage);
    return made.error().what;
  };
  using Catch::Contains;
  const float nan = std::nanf("");
  CHECK_THAT(refusal([&](auto& o) { o.temperature = nan; }), Contains("--temp"));
  CHECK_THAT(refusal([&](auto& o) { o.temperature = infinity; }), Contains("--temp"));
  CHECK_THAT(refusal([&](auto& o) { o.top_p = nan; }), Contains("--top-p"));
  CHECK_THAT(refusal([&](auto& o) { o.top_p = 0; }), Contains("--top-p"));
  CHECK_THAT(refusal([&](auto& o) { o.min_p = 1.5F; }), Contains("--min-p"));
  CHECK_THAT(refusal([&](auto& o) { o.repeat_penalty = 0; }), Contains("--repeat-penalty"));
  CHECK_THAT(refusal([&](auto& o) { o.repeat_last_n = -2; }), Contains("--repeat-last-n"));
  CHECK_THAT(refusal([&](auto& o) { o.frequency_penalty = nan; }), Contains("--frequency-penalty"));
  CHECK_THAT(refusal([&](auto& o) { o.presence_penalty = infinity; }),
             Contains("--presence-penalty"));
  CHECK_THAT(refusal([&](auto& o) { o.biases = {{4, 0}}; }), Contains("token 4"));
  CHECK_THAT(refusal([&](auto& o) { o.biases = {{-1, 0}}; }), Contains("token -1"));
  CHECK_THAT(refusal([&](auto& o) { o.biases = {{1, infinity}}; }), Contains("token 1"));
}

TEST_CASE("log probability: raw logits, by log-sum-exp") {
  CHECK(std::exp(log_probability(four, 0)) == Approx(0.643914).margin(1e-6));
  CHECK(std::exp(log_probability(four, 3)) == Approx(0.032059).margin(1e-6));
  const std::vector<float> shifted = {1002, 1001, 1000, 999};
  CHECK(log_probability(shifted, 1) == Approx(log_probability(four, 1)).margin(1e-12));
  const std::vector<float> banned = {3, -infinity, 3};
  CHECK(log_probability(banned, 0) == Approx(std::log(0.5)).margin(1e-12));
}
