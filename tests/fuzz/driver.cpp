// Deterministic fuzzing: PROGRAM [ROUNDS [SEED]]. Round r of seed s is always the same input; a
// crash prints both, and PROGRAM 1 SEED repeats a seed's first round.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

// std::mt19937_64 is the same everywhere; the standard's distributions are not.
using Random = std::mt19937_64;

std::uint64_t current_seed = 0;

extern "C" void report_seed(int signal_number) {
  std::fprintf(stderr, "failed with seed %llu: run with the arguments 1 %llu\n",
               static_cast<unsigned long long>(current_seed),
               static_cast<unsigned long long>(current_seed));
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

std::size_t below(Random& random, std::size_t limit) {
  return limit == 0 ? 0 : static_cast<std::size_t>(random() % limit);
}

// Values at which lengths and counts go wrong.
std::uint64_t hostile_number(Random& random) {
  const std::uint64_t power = std::uint64_t{1} << below(random, 64);
  switch (below(random, 5)) {
    case 0:
      return power;
    case 1:
      return power - 1;
    case 2:
      return ~power;
    case 3:
      return below(random, 300);
    default:
      return random();
  }
}

void mutate(std::string& input, const std::vector<std::string>& seeds, Random& random) {
  const std::size_t at = below(random, input.size());
  switch (below(random, 7)) {
    case 0:  // flip a bit
      if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << below(random, 8)));
      break;
    case 1:  // set a byte
      if (!input.empty()) input[at] = static_cast<char>(random());
      break;
    case 2: {  // overwrite 1 to 8 bytes by a number
      const std::uint64_t number = hostile_number(random);
      const std::size_t width = std::size_t{1} << below(random, 4);
      std::memcpy(input.data() + at, &number, std::min(width, input.size() - at));
      break;
    }
    case 3:  // delete some
      input.erase(at, 1 + below(random, 16));
      break;
    case 4: {  // insert a number's bytes
      const std::uint64_t number = hostile_number(random);
      char bytes[sizeof number];
      std::memcpy(bytes, &number, sizeof number);
      input.insert(at, bytes, 1 + below(random, sizeof bytes));
      break;
    }
    case 5:  // cut
      input.resize(at);
      break;
    default: {  // copy a stretch of another seed over it
      const std::string& other = seeds[below(random, seeds.size())];
      if (other.empty()) break;
      const std::size_t from = below(random, other.size());
      const std::string piece = other.substr(from, 1 + below(random, 64));
      input.replace(at, piece.size(), piece);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t rounds =
      argc > 1 ? std::strtoull(argv[1], nullptr, 10) : millrace::testing::fuzz_rounds();
  const std::uint64_t first_seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const std::vector<std::string> seeds = millrace::testing::fuzz_seeds();
  std::signal(SIGABRT, report_seed);
  std::signal(SIGSEGV, report_seed);
  const auto feed = [](const std::string& input) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  };
  for (const std::string& seed : seeds) feed(seed);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    current_seed = first_seed + round;
    Random random(current_seed);
    std::string input = seeds[below(random, seeds.size())];
    const std::size_t steps = 1 + below(random, 4);
    for (std::size_t i = 0; i < steps; ++i) mutate(input, seeds, random);
    feed(input);
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(rounds + seeds.size()));
  return 0;
}
