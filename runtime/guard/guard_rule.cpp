#include "runtime/guard/guard_rule.h"

#include <algorithm>

namespace millrace {

const char* pressure_cause_text(PressureCause cause) noexcept {
  switch (cause) {
    case PressureCause::none:
      return "none";
    case PressureCause::left:
      return "little memory is left";
    case PressureCause::waiting:
      return "tasks wait for memory (PSI)";
    case PressureCause::faults:
      return "pages of this process had to be read again (major faults)";
  }
  return "none";
}

GuardRule::GuardRule(std::uint64_t available_bytes, std::uint64_t plan_bytes) noexcept {
  const std::uint64_t spared = available_bytes - std::min(available_bytes, plan_bytes);
  // Never more than the plan itself can keep free, or the first look would shrink the pool.
  low_ = std::min(std::clamp(available_bytes / low_divisor, low_min, low_max),
                  spared / (aim_factor + 1));
}

void GuardRule::trouble(std::uint64_t now_ns) noexcept {
  if (grew_ns_ != 0 && trouble_ns_ < grew_ns_ && now_ns - grew_ns_ < calm_needed_ns_)
    calm_needed_ns_ = std::min(2 * calm_needed_ns_, calm_ns_max);
  trouble_ns_ = now_ns;
}

// `near`: little enough is left that waiting may be our doing.
PressureCause GuardRule::cause_of(std::uint64_t now_ns, const PressureSample& sample,
                                  bool near) noexcept {
  if (sample.left_bytes < low_) return PressureCause::left;
  const std::uint64_t passed_ns = now_ns - window_start_ns_;
  if (passed_ns < window_ns) return PressureCause::none;
  const PressureSample before = window_start_;
  window_start_ns_ = now_ns;
  window_start_ = sample;
  const double seconds = static_cast<double>(passed_ns) * 1e-9;
  constexpr std::uint64_t unknown = PressureSample::unknown;
  if (near && sample.waited_us != unknown && before.waited_us != unknown) {
    const auto waited = static_cast<double>(sample.waited_us - before.waited_us) * 1e-6;
    if (waited > waited_share_max * seconds) return PressureCause::waiting;
  }
  const auto faults = static_cast<double>(sample.major_faults - before.major_faults);
  return faults > faults_per_second_max * seconds ? PressureCause::faults : PressureCause::none;
}

GuardRule::Verdict GuardRule::judge(std::uint64_t now_ns, const PressureSample& sample) noexcept {
  if (!begun_) {
    begun_ = true;
    window_start_ns_ = trouble_ns_ = now_ns;
    window_start_ = sample;
  }
  const std::uint64_t aim = aim_factor * low_;
  const bool known = sample.left_bytes != PressureSample::unknown;
  const bool near = !known || sample.left_bytes < watch_factor * low_;
  Verdict verdict;
  verdict.look_often = known && near;
  verdict.cause = cause_of(now_ns, sample, near);
  if (verdict.cause != PressureCause::none) {
    trouble(now_ns);
    const std::uint64_t missing = known ? aim - std::min(aim, sample.left_bytes) : 0;
    verdict.give_bytes = std::max<std::uint64_t>(1, missing);
    return verdict;
  }
  const bool calm = now_ns - trouble_ns_ >= calm_needed_ns_ && now_ns - grew_ns_ >= grow_pause_ns;
  if (calm && known && sample.left_bytes > aim) verdict.take_bytes = sample.left_bytes - aim;
  if (calm && !known) verdict.take_bytes = PressureSample::unknown;
  return verdict;
}

}  // namespace millrace
