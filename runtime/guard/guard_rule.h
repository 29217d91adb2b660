// When the pool shrinks and when it grows: pure, from samples and the time they were taken at.
#pragma once

#include <cstdint>

#include "runtime/guard/pressure.h"

namespace millrace {

enum class PressureCause : std::uint8_t { none, left, waiting, faults };
const char* pressure_cause_text(PressureCause cause) noexcept;

class GuardRule {
 public:
  // Too little is left below this share of what was available at the start. A plan leaves at least
  // 5 %, `auto` 10 %: no run shrinks by itself.
  static constexpr std::uint64_t low_divisor = 50;
  // But at least so much, since a neighbour may fill 32 MiB between two looks (20 ms at 1.6 GB/s);
  // and at most what is plenty on the largest machine.
  static constexpr std::uint64_t low_min = std::uint64_t{32} << 20;
  static constexpr std::uint64_t low_max = std::uint64_t{512} << 20;
  // Shrinking aims at twice the low mark, and what growing would leave must not be less: between
  // the marks nothing moves.
  static constexpr std::uint64_t aim_factor = 2;
  // From here on down it is looked at often, and waiting for memory (PSI) is taken as our doing. A
  // neighbour that is short in a control group of its own waits too, and gains nothing from us.
  static constexpr std::uint64_t watch_factor = 4;
  // Waiting and faults are rates over at least so long.
  static constexpr std::uint64_t window_ns = 500'000'000;
  // Some task waited for memory in a tenth of the time: PSI counts reclaim and refaults, which do
  // not happen at all while there is room.
  static constexpr double waited_share_max = 0.10;
  // Major faults a second. A run that has begun has none; one expert that was swapped out has
  // hundreds.
  static constexpr double faults_per_second_max = 100;
  // Without trouble for so long, a segment is taken again, and then one a second: its pages are
  // zeroed (0.1 s for 256 MiB) and its experts read once more. Doubled each time that trouble comes
  // back soon after the pool grew.
  static constexpr std::uint64_t calm_ns = 5'000'000'000;
  static constexpr std::uint64_t calm_ns_max = 320'000'000'000;
  static constexpr std::uint64_t grow_pause_ns = 1'000'000'000;
  // Between two looks: each takes some 60 us.
  static constexpr std::uint64_t look_ns = 100'000'000;
  static constexpr std::uint64_t look_often_ns = 20'000'000;

  // What was available before the plan's memory was taken.
  GuardRule(std::uint64_t available_bytes, std::uint64_t plan_bytes) noexcept;

  struct Verdict {
    PressureCause cause = PressureCause::none;
    std::uint64_t give_bytes = 0;  // to give up at least; 0: nothing
    std::uint64_t take_bytes = 0;  // may be taken at most; 0: nothing
    bool look_often = false;
  };
  Verdict judge(std::uint64_t now_ns, const PressureSample& sample) noexcept;
  // The pool was grown, or could not be.
  void grew(std::uint64_t now_ns) noexcept { grew_ns_ = now_ns; }
  void failed_to_grow(std::uint64_t now_ns) noexcept { trouble(now_ns); }

  std::uint64_t low_bytes() const noexcept { return low_; }

 private:
  PressureCause cause_of(std::uint64_t now_ns, const PressureSample& sample, bool near) noexcept;
  void trouble(std::uint64_t now_ns) noexcept;

  std::uint64_t low_;
  bool begun_ = false;
  std::uint64_t window_start_ns_ = 0;
  PressureSample window_start_;
  std::uint64_t trouble_ns_ = 0;  // when there was some last, or the start
  std::uint64_t grew_ns_ = 0;     // 0: never
  std::uint64_t calm_needed_ns_ = calm_ns;
};

}  // namespace millrace
