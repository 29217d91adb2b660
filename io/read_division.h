// ReadDivision: which of several drives that hold the same bytes reads what next, so that all of
// them end at the same time. Pure: it knows depths, bytes in flight and times that it is told, and
// follows the speed at which each drive's reads really end. One thread.
//
// A drive's speed is its arrived bytes over the time in which it had something to do, the last half
// second or so counting: waiting times of the drive are in it, so that a drive which answers late
// gets less, however fast it is once it has begun. A share that fits makes all end together; one
// that is too large makes its drive end later, look slower and get less the next time. Small reads
// that a drive serves side by side take as long as one: then any shares are as good as others, and
// they may drift.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/base/units.h"

namespace millrace {

class ReadDivision {
 public:
  struct Drive {
    std::uint32_t depth = 1;        // reads in flight at most
    std::uint64_t piece_bytes = 0;  // of one read, about; a multiple of the block
    double bytes_per_second = 0;    // as its profile says; 0: not known
  };
  // A set of drives is their bits.
  using Drives = std::uint32_t;
  struct Part {
    std::uint32_t drive = 0;
    std::uint64_t bytes = 0;  // from the front of what is left; 0: wait, the right drive is full
  };

  static constexpr std::uint32_t drives_max = 8;
  // Parts smaller than this are not worth a read of their own.
  static constexpr std::uint64_t part_bytes_min = 64 * KiB;

  // Parts end at multiples of the block (behind the start of their range), or with their range.
  ReadDivision(std::span<const Drive> drives, std::uint32_t block_bytes) noexcept;

  // A round of whole() and divided() begins; `now_ns` never goes back. What waited in the last
  // round is forgotten.
  void begin(std::uint64_t now_ns) noexcept;
  // The next part of a range of which `rest_bytes` (> 0) are left, from one of `among` (not empty).
  // Each call must be followed by sent() if a part came back. What has to wait counts as a load of
  // the drive that it waits for until the round ends.
  //   whole: all of it to the drive that would have it first (call again for its next piece).
  Part whole(std::uint64_t rest_bytes, Drives among) noexcept;
  //   divided: each drive gets as much as it brings by the time at which the others end.
  Part divided(std::uint64_t rest_bytes, Drives among) noexcept;
  // The drive of `among` that would have these bytes first, full or not.
  std::uint32_t soonest(std::uint64_t bytes, Drives among) const noexcept;

  void sent(std::uint32_t drive, std::uint64_t bytes) noexcept;
  // Failed reads say nothing about the speed.
  void ended(std::uint32_t drive, std::uint64_t bytes, bool arrived) noexcept;

  std::uint32_t count() const noexcept { return count_; }
  bool room(Drives among) const noexcept;  // one of them is not full
  std::uint32_t depth(std::uint32_t drive) const noexcept { return lanes_[drive].drive.depth; }
  std::uint64_t busy_ns(std::uint32_t drive) const noexcept { return lanes_[drive].busy_ns; }
  double bytes_per_second(std::uint32_t drive) const noexcept { return lanes_[drive].rate; }

 private:
  struct Lane {
    Drive drive;
    std::uint32_t in_flight = 0;
    std::uint64_t bytes_in_flight = 0;
    double reserved = 0;  // bytes that wait for it in this round
    double rate = 0;      // bytes per second
    double first_rate = 0;
    // What the rate is made of: bytes and busy time, of which the past fades.
    double window_bytes = 0, window_ns = 0;
    std::uint64_t arrived_bytes = 0;  // since the round began
    std::uint64_t busy_ns = 0;
    std::uint64_t idle_ns = 0;  // at a stretch, while others had something to do
    bool busy = false;          // had something in flight when, or since, the round began

    bool full() const noexcept { return in_flight >= drive.depth; }
    double load() const noexcept { return static_cast<double>(bytes_in_flight) + reserved; }
  };
  using Shares = std::array<double, drives_max>;

  void measure(Lane& lane, std::uint64_t ns, bool others_busy) noexcept;
  Drives share_out(std::uint64_t bytes, Drives among, Shares& shares) const noexcept;
  std::uint64_t least_bytes(const Lane& lane) const noexcept;

  std::array<Lane, drives_max> lanes_;
  std::uint32_t count_;
  std::uint32_t block_bytes_;
  std::uint64_t now_ns_ = 0;
};

}  // namespace millrace
