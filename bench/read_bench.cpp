// What each way of reading costs: GB/s and CPU time per GB of 1 MiB direct reads through the
// ReadScheduler, by reader, kind of memory and depth. Runs alternate; medians are printed, beside
// the limit: the best of all runs.
//
//   read_bench FOLDER [MIB] [RUNS]     reads a scratch file that it makes there
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/command_line.h"
#include "io/file.h"
#include "io/read_scheduler.h"
#include "runtime/base/clock.h"
#include "runtime/base/units.h"
#include "runtime/floor/read_memory.h"
#include "runtime/floor/read_slice.h"
#include "runtime/floor/scratch_file.h"

namespace {

using namespace millrace;
using bench::die;

constexpr std::uint64_t piece_bytes = 1 * MiB;
constexpr std::uint64_t slots = 64;

struct Way {
  const char* name;
  ReaderKind kind;
  bool registered;
  Pages pages;
};

constexpr Way ways[] = {
    {"uring, registered, huge pages", ReaderKind::uring, true, Pages::huge},
    {"uring, registered, huge but for the last", ReaderKind::uring, true, Pages::huge_but_one},
    {"uring, registered, 4 KiB pages", ReaderKind::uring, true, Pages::small},
    {"uring, plain, huge pages", ReaderKind::uring, false, Pages::huge},
    {"uring, plain, 4 KiB pages", ReaderKind::uring, false, Pages::small},
    {"threads, huge pages", ReaderKind::threads, false, Pages::huge},
    {"threads, 4 KiB pages", ReaderKind::threads, false, Pages::small},
};
constexpr std::uint32_t depths[] = {8, 16};

struct Sample {
  double gb_per_s = 0;
  double cpu_ms_per_gb = 0;    // user and system, whole process
  double owner_ms_per_gb = 0;  // the scheduler's thread alone
};

double cpu_ms() {
  const ProcessUse use = ProcessUse::now();
  return use.user_ms + use.system_ms;
}

ReadMemory map_pages(Pages pages) {
  auto memory = ReadMemory::create(slots * piece_bytes, pages);
  if (!memory) die(memory.error().what);
  return *std::move(memory);
}

// Keeps 2 * depth ranges of one piece queued until the file is through.
struct Run {
  ReadScheduler* scheduler = nullptr;
  std::uint64_t file_bytes = 0;
  std::uint64_t next_offset = 0;
  std::uint64_t open = 0;
  std::uint64_t wrong = 0;
  std::uint64_t checksum = 0;  // of the first words: the same however they are read
  bool ended = false;
  std::mutex mutex;
  std::condition_variable changed;

  bool take(RangeRead& range) {
    if (next_offset == file_bytes) return false;
    range.offset_bytes = next_offset;
    next_offset += piece_bytes;
    return true;
  }
  static void done(RangeRead& range, int status) {
    auto& run = *static_cast<Run*>(range.owner);
    std::uint64_t first = 0;
    std::memcpy(&first, range.target, 8);
    if (status != 0) ++run.wrong;
    run.checksum ^= first;
    if (run.take(range)) {
      RangeRead* const again[] = {&range};
      run.scheduler->submit(again);
    } else if (--run.open == 0) {
      const std::lock_guard lock(run.mutex);
      run.ended = true;
      run.changed.notify_one();
    }
  }
};

// Nothing where the system refuses this way.
std::optional<Sample> measure(const File& file, const Way& way, std::uint32_t depth,
                              std::span<std::byte> memory) {
  const File* const files[] = {&file};
  const std::span<std::byte> buffers[] = {memory};
  ReadSchedulerOptions options;
  options.reader.kind = way.kind;
  options.reader.depth = depth;
  options.reader.files = files;
  if (way.registered) options.reader.buffers = buffers;
  options.piece_bytes = piece_bytes;
  auto scheduler = ReadScheduler::start(options);
  if (!scheduler || (way.registered && (*scheduler)->registered_buffers() != 1)) return {};
  Run run;
  run.scheduler = scheduler->get();
  run.file_bytes = file.size_bytes();
  std::vector<RangeRead> ranges(std::min<std::uint64_t>(slots, 2 * depth));
  std::vector<RangeRead*> list;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    RangeRead& range = ranges[i];
    range.bytes = range.needed_bytes = piece_bytes;
    range.target = memory.data() + i * piece_bytes;
    range.buffer = way.registered ? 0 : -1;
    range.owner = &run;
    range.done = &Run::done;
    if (run.take(range)) list.push_back(&range);
  }
  run.open = list.size();
  const double cpu_before = cpu_ms();
  const std::uint64_t start = system_clock().now_ns();
  (*scheduler)->submit(list);
  {
    std::unique_lock lock(run.mutex);
    run.changed.wait(lock, [&] { return run.ended; });
  }
  const double gb = static_cast<double>(file.size_bytes()) / 1e9;
  Sample sample;
  sample.gb_per_s = gb / (static_cast<double>(system_clock().now_ns() - start) / 1e9);
  sample.cpu_ms_per_gb = (cpu_ms() - cpu_before) / gb;
  sample.owner_ms_per_gb = static_cast<double>((*scheduler)->stats().owner_cpu_ns) / 1e6 / gb;
  static const std::uint64_t expected = run.checksum;
  if (run.wrong != 0 || run.checksum != expected)
    die(fmt::format("{}: {} pieces failed, or others came wrong", way.name, run.wrong));
  return sample;
}

double median(const std::vector<Sample>& samples, double Sample::*field) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*field);
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Samples = std::vector<Sample>[std::size(ways)][std::size(depths)];

void print(const Samples& samples) {
  double limit = 0;
  for (const auto& way : samples)
    for (const auto& depth : way)
      for (const Sample& sample : depth) limit = std::max(limit, sample.gb_per_s);
  fmt::print("best run: {:.2f} GB/s\n{:<42} {:>5} {:>7} {:>8} {:>10} {:>12}\n", limit, "way",
             "depth", "GB/s", "of best", "CPU ms/GB", "owner ms/GB");
  for (std::size_t w = 0; w < std::size(ways); ++w) {
    for (std::size_t d = 0; d < std::size(depths); ++d) {
      const std::vector<Sample>& of = samples[w][d];
      if (of.empty()) {
        fmt::print("{:<42} {:>5} refused here\n", ways[w].name, depths[d]);
        continue;
      }
      const double rate = median(of, &Sample::gb_per_s);
      fmt::print("{:<42} {:>5} {:>7.2f} {:>8.2f} {:>10.1f} {:>12.1f}\n", ways[w].name, depths[d],
                 rate, rate / limit, median(of, &Sample::cpu_ms_per_gb),
                 median(of, &Sample::owner_ms_per_gb));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) die("usage: read_bench FOLDER [MIB] [RUNS]");
  const std::uint64_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2048) * MiB;
  const std::uint64_t runs = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 5;
  if (bytes == 0 || runs == 0) die("MIB and RUNS are numbers above 0");
  const std::atomic<bool> go_on = false;
  auto scratch = ScratchFile::create(argv[1], bytes, 600, go_on, [](double) {});
  if (!scratch) die(scratch.error().what);
  auto file = File::open(scratch->path(), DirectMode::automatic);
  if (!file) die(file.error().what);
  fmt::print("{} MiB, {} runs, {}\n", file->size_bytes() / MiB, runs,
             file->direct() ? "direct" : file->buffered_reason());
  const ReadMemory memory[] = {map_pages(Pages::huge), map_pages(Pages::small),
                               map_pages(Pages::huge_but_one)};
  Samples samples;
  for (std::uint64_t run = 0; run < runs; ++run) {
    for (std::size_t d = 0; d < std::size(depths); ++d) {
      for (std::size_t w = 0; w < std::size(ways); ++w) {
        const auto pages = static_cast<std::size_t>(ways[w].pages);
        const auto sample = measure(*file, ways[w], depths[d], memory[pages].bytes());
        if (sample) samples[w][d].push_back(*sample);
      }
    }
  }
  print(samples);
  return 0;
}
