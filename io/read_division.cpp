#include "io/read_division.h"

#include <algorithm>

#include "io/alignment.h"
#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr double unknown_rate = 1e9;       // only the ratio to the others' matters
constexpr double slowest_rate = 1e3;       // of a drive that brings nothing at all
constexpr double known_window_ns = 50e6;   // how much a rate that is known before counts
constexpr double unknown_window_ns = 1e6;  // and one that is guessed
constexpr double window_ns_max = 500e6;    // then the past is halved
constexpr std::uint64_t forget_ns = 1e9;   // a drive that got nothing for so long is worth a try

bool holds(ReadDivision::Drives drives, std::uint32_t drive) noexcept {
  return (drives >> drive & 1) != 0;
}

}  // namespace

ReadDivision::ReadDivision(std::span<const Drive> drives, std::uint32_t block_bytes) noexcept
    : count_(static_cast<std::uint32_t>(drives.size())), block_bytes_(block_bytes) {
  MILLRACE_CHECK(!drives.empty() && drives.size() <= lanes_.size() && block_bytes > 0);
  double known = 0;
  std::uint32_t known_count = 0;
  for (const Drive& drive : drives) {
    MILLRACE_CHECK(drive.depth > 0 && drive.piece_bytes > 0);
    if (drive.bytes_per_second <= 0) continue;
    known += drive.bytes_per_second;
    ++known_count;
  }
  const double middle = known_count == 0 ? unknown_rate : known / known_count;
  for (std::uint32_t i = 0; i < count_; ++i) {
    Lane& lane = lanes_[i];
    lane.drive = drives[i];
    const bool is_known = drives[i].bytes_per_second > 0;
    lane.rate = is_known ? drives[i].bytes_per_second : middle;
    lane.rate = std::max(lane.rate, slowest_rate);
    lane.first_rate = lane.rate;
    lane.window_ns = is_known ? known_window_ns : unknown_window_ns;
    lane.window_bytes = lane.rate * lane.window_ns * 1e-9;
  }
}

void ReadDivision::begin(std::uint64_t now_ns) noexcept {
  const std::uint64_t ns = now_ns_ == 0 ? 0 : now_ns - now_ns_;
  now_ns_ = now_ns;
  bool any_busy = false;
  for (std::uint32_t i = 0; i < count_; ++i) any_busy = any_busy || lanes_[i].busy;
  for (std::uint32_t i = 0; i < count_; ++i) measure(lanes_[i], ns, any_busy);
}

// Takes the time of a round, which has passed, into the lane's figures.
void ReadDivision::measure(Lane& lane, std::uint64_t ns, bool others_busy) noexcept {
  lane.reserved = 0;
  if (lane.busy) {
    lane.busy_ns += ns;
    lane.window_ns += static_cast<double>(ns);
    lane.idle_ns = 0;
  } else if (others_busy) {
    lane.idle_ns += ns;
    // It was slow once; nobody knows what it would do now. The next read will tell.
    if (lane.idle_ns >= forget_ns) {
      lane.idle_ns = 0;
      lane.window_ns = unknown_window_ns;
      lane.window_bytes =
          std::max(lane.rate, std::min(4 * lane.rate, lane.first_rate)) * unknown_window_ns * 1e-9;
    }
  }
  lane.window_bytes += static_cast<double>(lane.arrived_bytes);
  lane.arrived_bytes = 0;
  if (lane.window_ns > window_ns_max) {
    lane.window_ns /= 2;
    lane.window_bytes /= 2;
  }
  lane.window_bytes = std::max(lane.window_bytes, slowest_rate * lane.window_ns * 1e-9);
  lane.rate = lane.window_bytes / (lane.window_ns * 1e-9);
  lane.busy = lane.in_flight > 0;
}

std::uint32_t ReadDivision::soonest(std::uint64_t bytes, Drives among) const noexcept {
  MILLRACE_CHECK(among != 0 && among >> count_ == 0);
  std::uint32_t best = count_;
  double best_time = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (!holds(among, i)) continue;
    const double time = (lanes_[i].load() + static_cast<double>(bytes)) / lanes_[i].rate;
    if (best != count_ && time >= best_time) continue;
    best = i;
    best_time = time;
  }
  return best;
}

ReadDivision::Part ReadDivision::whole(std::uint64_t rest_bytes, Drives among) noexcept {
  const std::uint32_t drive = soonest(rest_bytes, among);
  Lane& lane = lanes_[drive];
  if (!lane.full())
    return {drive, even_piece_bytes(rest_bytes, lane.drive.piece_bytes, block_bytes_)};
  lane.reserved += static_cast<double>(rest_bytes);
  return {};
}

std::uint64_t ReadDivision::least_bytes(const Lane& lane) const noexcept {
  return std::max<std::uint64_t>(block_bytes_, std::min(part_bytes_min, lane.drive.piece_bytes));
}

// Bytes for each drive such that all end at once, loads included. Drives that would get less than
// is worth a read are left out, the least needed first. Returns those that get some.
ReadDivision::Drives ReadDivision::share_out(std::uint64_t bytes, Drives among,
                                             Shares& shares) const noexcept {
  while (true) {
    double load = static_cast<double>(bytes);
    double rate = 0;
    for (std::uint32_t i = 0; i < count_; ++i) {
      if (!holds(among, i)) continue;
      load += lanes_[i].load();
      rate += lanes_[i].rate;
    }
    const double seconds = load / rate;
    std::uint32_t worst = count_;
    double worst_share = 0;
    for (std::uint32_t i = 0; i < count_; ++i) {
      if (!holds(among, i)) continue;
      shares[i] = seconds * lanes_[i].rate - lanes_[i].load();
      const double over = shares[i] - static_cast<double>(least_bytes(lanes_[i]));
      if (over >= 0 || (worst != count_ && over >= worst_share)) continue;
      worst = i;
      worst_share = over;
    }
    if (worst == count_) return among;
    const Drives others = among & ~(Drives{1} << worst);
    if (others == 0) return among;
    among = others;
  }
}

ReadDivision::Part ReadDivision::divided(std::uint64_t rest_bytes, Drives among) noexcept {
  MILLRACE_CHECK(among != 0 && among >> count_ == 0);
  Shares shares{};
  const Drives sharing = share_out(rest_bytes, among, shares);
  std::uint32_t best = count_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (!holds(sharing, i) || lanes_[i].full()) continue;
    if (best == count_ || shares[i] > shares[best]) best = i;
  }
  if (best == count_) {
    for (std::uint32_t i = 0; i < count_; ++i)
      if (holds(sharing, i)) lanes_[i].reserved += std::max(0.0, shares[i]);
    return {};
  }
  const Lane& lane = lanes_[best];
  std::uint64_t bytes = rest_bytes;
  if (static_cast<double>(rest_bytes) > shares[best])
    bytes = std::min(rest_bytes, round_up(static_cast<std::uint64_t>(std::max(1.0, shares[best])),
                                          block_bytes_));
  // No crumbs: what is left must be worth a read as well.
  if (rest_bytes - bytes < least_bytes(lane)) bytes = rest_bytes;
  return {best, std::min(bytes, lane.drive.piece_bytes)};
}

void ReadDivision::sent(std::uint32_t drive, std::uint64_t bytes) noexcept {
  Lane& lane = lanes_[drive];
  ++lane.in_flight;
  lane.bytes_in_flight += bytes;
  lane.busy = true;
}

void ReadDivision::ended(std::uint32_t drive, std::uint64_t bytes, bool arrived) noexcept {
  Lane& lane = lanes_[drive];
  MILLRACE_DCHECK(lane.in_flight > 0 && lane.bytes_in_flight >= bytes);
  --lane.in_flight;
  lane.bytes_in_flight -= bytes;
  if (arrived) lane.arrived_bytes += bytes;
}

bool ReadDivision::room(Drives among) const noexcept {
  for (std::uint32_t i = 0; i < count_; ++i)
    if (holds(among, i) && !lanes_[i].full()) return true;
  return false;
}

}  // namespace millrace
