#include "tests/support/fake_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/read_progress.h"

namespace millrace::testing {

namespace {

// One step of a counter-based generator (splitmix64's mixing).
std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

class FakeReader final : public Reader {
 public:
  FakeReader(FakeDrive& drive, std::uint32_t depth) : drive_(drive), depth_(depth) {
    pending_.reserve(depth);
    finished_.reserve(depth);
  }

  const char* name() const noexcept override { return "fake"; }
  std::uint32_t depth() const noexcept override { return depth_; }
  std::uint32_t in_flight() const noexcept override {
    return static_cast<std::uint32_t>(pending_.size());
  }
  std::uint32_t registered_buffers() const noexcept override { return 0; }

  bool submit(Read& read) noexcept override {
    if (pending_.size() == depth_) return false;
    const std::lock_guard lock(drive_.mutex_);
    MILLRACE_CHECK(read.file < drive_.files_.size() && read.needed_bytes <= read.bytes);
    read.arrived_bytes = 0;
    pending_.push_back({&read, drive_.delay(read.file), 0});
    drive_.submissions_.push_back({read.file, read.offset_bytes, read.bytes});
    drive_.changed_.notify_all();
    return true;
  }

  std::uint32_t poll(bool wait) noexcept override {
    MILLRACE_CHECK(finished_.empty());
    {
      std::unique_lock lock(drive_.mutex_);
      do {
        if (!drive_.held_) step();
        if (!wait || !finished_.empty() || woken_) break;
        if (drive_.held_ || pending_.empty()) {
          drive_.changed_.wait(lock,
                               [this] { return woken_ || (!drive_.held_ && !pending_.empty()); });
        }
      } while (!woken_);
      if (wait) woken_ = false;
    }
    const auto ran = static_cast<std::uint32_t>(finished_.size());
    for (const Finished& finished : finished_) finished.read->done(*finished.read, finished.status);
    finished_.clear();
    return ran;
  }

  void wake() noexcept override {
    const std::lock_guard lock(drive_.mutex_);
    woken_ = true;
    drive_.changed_.notify_all();
  }

 private:
  struct Pending {
    Read* read;
    std::uint32_t steps_left;
    unsigned stalls;
  };
  struct Finished {
    Read* read;
    int status;
  };

  // One unit of the drive's time: what is due arrives, in drawn order. Under the drive's mutex.
  void step() noexcept {
    ++drive_.steps_;
    for (Pending& pending : pending_) {
      if (--pending.steps_left > 0) continue;
      Read& read = *pending.read;
      const std::int64_t result =
          drive_.serve(read.file, read.offset_bytes + read.arrived_bytes,
                       read.target + read.arrived_bytes, read.bytes - read.arrived_bytes);
      const int status = advance_read(read, pending.stalls, drive_.block_bytes, result);
      if (status == read_goes_on) {
        pending.steps_left = drive_.delay(read.file);
      } else {
        finished_.push_back({&read, status});
      }
    }
    std::erase_if(pending_, [](const Pending& pending) { return pending.steps_left == 0; });
    for (std::size_t left = finished_.size(); left > 1; --left)
      std::swap(finished_[left - 1], finished_[drive_.random() % left]);
  }

  FakeDrive& drive_;
  const std::uint32_t depth_;
  std::vector<Pending> pending_;
  std::vector<Finished> finished_;
  bool woken_ = false;  // under the drive's mutex
};

std::uint32_t FakeDrive::add_file(std::vector<std::byte> contents) {
  const std::lock_guard lock(mutex_);
  files_.push_back(std::move(contents));
  states_.emplace_back();
  return static_cast<std::uint32_t>(files_.size() - 1);
}

void FakeDrive::truncate(std::uint32_t file, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  files_[file].resize(bytes);
}

void FakeDrive::fail(std::uint32_t file, std::uint64_t offset_bytes, int code, unsigned times) {
  const std::lock_guard lock(mutex_);
  faults_.push_back({file, offset_bytes, code, times});
}

void FakeDrive::break_file(std::uint32_t file, int code, unsigned reads) {
  const std::lock_guard lock(mutex_);
  states_[file].broken_code = code;
  states_[file].breaks_after = states_[file].served + reads;
}

void FakeDrive::set_pace(std::uint32_t file, std::uint32_t steps, unsigned reads) {
  const std::lock_guard lock(mutex_);
  FileState& state = states_[file];
  if (reads == 0) state.pace = steps;
  state.next_pace = steps;
  state.paced_after = state.served + reads;
}

std::uint32_t FakeDrive::delay(std::uint32_t file) noexcept {
  FileState& state = states_[file];
  if (state.next_pace != 0 && state.served >= state.paced_after) state.pace = state.next_pace;
  if (state.pace == 0) return 1 + static_cast<std::uint32_t>(random() % delay_steps_max);
  state.busy_until = std::max(state.busy_until, steps_) + state.pace;
  return static_cast<std::uint32_t>(state.busy_until - steps_);
}

std::uint64_t FakeDrive::StepClock::now_ns() noexcept {
  const std::lock_guard lock(drive_.mutex_);
  return drive_.steps_ * 1'000'000;
}

void FakeDrive::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeDrive::release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void FakeDrive::wait_for_submissions(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return submissions_.size() >= count; });
}

std::vector<FakeSubmission> FakeDrive::submissions() const {
  const std::lock_guard lock(mutex_);
  return submissions_;
}

Result<MadeReader> FakeDrive::make_reader(const ReaderOptions& options, void* drive) {
  MadeReader made;
  made.reader = std::make_unique<FakeReader>(*static_cast<FakeDrive*>(drive), options.depth);
  return made;
}

std::uint64_t FakeDrive::random() noexcept { return mix(seed_ ^ mix(++draws_)); }

std::int64_t FakeDrive::serve(std::uint32_t file, std::uint64_t offset_bytes, std::byte* target,
                              std::uint32_t bytes) {
  for (Fault& fault : faults_) {
    const bool covered = fault.file == file && fault.offset_bytes >= offset_bytes &&
                         fault.offset_bytes - offset_bytes < bytes;
    if (!covered || fault.times == 0) continue;
    --fault.times;
    return -fault.code;
  }
  FileState& state = states_[file];
  if (state.broken_code != 0 && state.served >= state.breaks_after) return -state.broken_code;
  ++state.served;
  if (faults_per_1000 > 0 && random() % 1000 < faults_per_1000) return -EIO;
  const std::vector<std::byte>& contents = files_[file];
  if (offset_bytes >= contents.size()) return 0;
  std::uint64_t there = std::min<std::uint64_t>(bytes, contents.size() - offset_bytes);
  if (short_reads) {
    const std::uint64_t blocks = there / block_bytes;
    if (blocks > 1) there = (1 + random() % blocks) * block_bytes;
  }
  std::memcpy(target, contents.data() + offset_bytes, there);
  return static_cast<std::int64_t>(there);
}

std::vector<std::byte> patterned_bytes(std::uint64_t seed, std::size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = mix(mix(seed) + at);
    std::memcpy(pattern.data() + at, &word, std::min<std::size_t>(8, bytes - at));
  }
  return pattern;
}

}  // namespace millrace::testing
