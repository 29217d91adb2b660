#include "runtime/floor/run_floor.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::uint64_t sample_bytes = 64 * MiB;
constexpr double first_guess = 0.5e9;  // bytes per second, before anything was measured

}  // namespace

RunFloor::RunFloor(ReadScheduler& scheduler, const SlotLayout& layout, PinnedBlock buffer)
    : scheduler_(scheduler), layout_(layout), buffer_(buffer) {
  ranges_.resize(std::size_t{2} * scheduler.depth());
  for (RangeRead& range : ranges_) {
    range.target = buffer.data;
    range.buffer = scheduler.registered_buffers() > 0 ? buffer.buffer : -1;
    range.owner = this;
    range.done = &RunFloor::range_done;
  }
}

bool RunFloor::due(std::uint64_t run_ns, bool last) const noexcept {
  const double rate = figure_.samples > 0 ? figure_.bytes_per_second() : first_guess;
  const double share = last && figure_.samples == 0 ? share_at_end : share_max;
  const double cost_ns = static_cast<double>(sample_bytes) / rate * 1e9;
  return static_cast<double>(spent_ns_) + cost_ns <= share * static_cast<double>(run_ns);
}

// A random read of a random expert, of those that the sample still has room for.
bool RunFloor::next_range(RangeRead& range) noexcept {
  if (bytes_left_ == 0 || failure_ != 0) return false;
  while (true) {  // layers without experts are passed over; there is one with
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t draw = random_ >> 16;
    const auto layer = static_cast<LayerIndex>(draw % layout_.layers());
    if (layout_.experts(layer) == 0) continue;
    const std::uint64_t rest = draw / layout_.layers();
    const auto expert = static_cast<ExpertIndex>(rest % layout_.experts(layer));
    const ExpertPlacement& place = layout_.at({layer, expert});
    const ExpertRead& read = place.reads[rest / layout_.experts(layer) % place.read_count];
    range.file = read.file;
    range.offset_bytes = read.offset_bytes;
    range.bytes = read.bytes;
    range.needed_bytes = read.needed_bytes;
    bytes_left_ -= std::min(bytes_left_, read.bytes);
    bytes_asked_ += read.bytes;
    return true;
  }
}

void RunFloor::range_done(RangeRead& range, int status) {
  auto& self = *static_cast<RunFloor*>(range.owner);
  if (status != 0 && self.failure_ == 0) self.failure_ = status;
  if (self.next_range(range)) {
    RangeRead* const again[] = {&range};
    self.scheduler_.submit(again);
    return;
  }
  const std::lock_guard lock(self.mutex_);
  if (--self.open_ == 0) self.ended_.notify_one();
}

void RunFloor::measure() {
  bytes_left_ = sample_bytes;
  bytes_asked_ = 0;
  failure_ = 0;
  std::vector<RangeRead*> list;
  for (RangeRead& range : ranges_)
    if (next_range(range)) list.push_back(&range);
  open_ = static_cast<std::uint32_t>(list.size());
  const std::uint64_t start = system_clock().now_ns();
  scheduler_.submit(list);
  {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return open_ == 0; });
  }
  const std::uint64_t ns = std::max<std::uint64_t>(1, system_clock().now_ns() - start);
  spent_ns_ += ns;
  if (failure_ != 0) return;
  ++figure_.samples;
  figure_.bytes += bytes_asked_;
  figure_.ns += ns;
}

}  // namespace millrace
