// How fast weights can be read that lie all over memory, as experts do, beside a sweep of
// neighbouring ones: GB/s of the plain read loop in huge pages, by turns, with one thread and with
// all that are asked for. Prints medians and all repeats as JSON.
//
//   memory_bench SIZE [PIECE_KIB] [REPEATS] [THREADS]     17G or 64M; 1088 KiB, 9 repeats, 2
//   threads
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "bench/command_line.h"
#include "io/pinned_memory.h"
#include "kernels/dispatch.h"
#include "runtime/base/json.h"
#include "runtime/base/units.h"
#include "runtime/kernel_study/study_team.h"
#include "runtime/machine.h"

namespace {

using namespace millrace;
using bench::die;
using bench::must;
using bench::number;

constexpr std::uint64_t pass_bytes = 512 * MiB;  // of a repeat, or all memory if that is less

struct Pieces {
  std::vector<PinnedBlock> blocks;
  std::uint64_t bytes;      // of each
  std::uint64_t in_a_pass;  // of all threads
};

// Neighbouring pieces, or ones at random places; each thread its own. Bytes per second.
class Reader {
 public:
  Reader(const Pieces& pieces, unsigned threads)
      : pieces_(pieces), team_(must(StudyTeam::create(threads))) {
    for (unsigned i = 0; i < threads; ++i) places_.emplace_back(i + 1);
  }

  double read(bool neighbours) {
    const std::uint64_t each = std::max<std::uint64_t>(1, pieces_.in_a_pass / team_.threads());
    const auto work = [&](unsigned thread) {
      const KernelTable& kernels = *supported_kernels().back();
      std::uint64_t sum = 0;
      for (std::uint64_t i = 0; i < each; ++i) {
        const std::uint64_t at = neighbours ? thread * each + i : places_[thread]();
        sum += kernels.read_all(pieces_.blocks[at % pieces_.blocks.size()].data, pieces_.bytes);
      }
      sums_[thread % std::size(sums_)] += sum;  // or nothing would be read
    };
    const double seconds = team_.run(1, work);
    return static_cast<double>(each * team_.threads() * pieces_.bytes) / seconds;
  }

 private:
  const Pieces& pieces_;
  StudyTeam team_;
  std::vector<std::mt19937_64> places_;
  std::uint64_t sums_[256] = {};
};

Json figure(const char* name, const std::vector<double>& repeats) {
  std::vector<double> sorted = repeats;
  std::sort(sorted.begin(), sorted.end());
  Json list = Json::array();
  for (const double value : repeats) list.push(value);
  Json json = Json::object();
  json.set("name", name).set("bytes_per_second", sorted[sorted.size() / 2]);
  json.set("repeats_bytes_per_second", std::move(list));
  return json;
}

Json measure(const Pieces& pieces, unsigned threads, std::uint64_t repeats) {
  Reader reader(pieces, threads);
  std::vector<double> sweep, scattered, ratio;
  for (std::uint64_t i = 0; i < repeats; ++i) {
    sweep.push_back(reader.read(true));
    scattered.push_back(reader.read(false));
    ratio.push_back(scattered.back() / sweep.back());
  }
  std::sort(ratio.begin(), ratio.end());
  Json json = Json::object();
  json.set("threads", threads).set("scattered_to_sweep", ratio[ratio.size() / 2]);
  json.set("ways", Json::array().push(figure("sweep", sweep)).push(figure("scattered", scattered)));
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words.size() > 4)
    die("usage: memory_bench SIZE [PIECE_KIB] [REPEATS] [THREADS]");
  const auto word = [&](std::size_t i, std::uint64_t otherwise, std::uint64_t most) {
    return words.size() > i ? number(words[i], most) : otherwise;
  };
  const auto size = parse_size(words[0]);
  if (!size || size->kind != SizeSpec::Kind::bytes || size->bytes == 0)
    die(words[0] + ": give bytes, as 256M or 17G");
  Pieces pieces{{}, word(1, 1088, 1 << 20) * KiB, 0};
  const std::uint64_t repeats = word(2, 9, 1000);
  const auto threads = static_cast<unsigned>(word(3, 2, 256));
  const std::uint64_t count = std::max<std::uint64_t>(1, size->bytes / pieces.bytes);
  if (const Status enough = require_memory("memory_bench", count * pieces.bytes); !enough)
    die(enough.error().what);
  PinnedMemory memory;
  pieces.blocks = must(memory.allocate(count, pieces.bytes));
  pieces.in_a_pass = std::min(pass_bytes / pieces.bytes + 1, count);
  Json out = Json::object();
  out.set("bytes", count * pieces.bytes).set("piece_bytes", pieces.bytes);
  out.set("huge_bytes", memory.stats().huge_bytes);
  Json teams = Json::array().push(measure(pieces, 1, repeats));
  if (threads > 1) teams.push(measure(pieces, threads, repeats));
  out.set("teams", std::move(teams));
  fmt::print("{}\n", out.dump(2));
  return std::fflush(stdout) == 0 ? 0 : 1;
}
