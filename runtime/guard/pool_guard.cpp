#include "runtime/guard/pool_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::size_t none = SIZE_MAX;

}  // namespace

PoolGuard::PoolGuard(const Parts& parts, std::uint64_t available_bytes, std::uint64_t plan_bytes)
    : parts_(parts),
      own_source_(parts.source == nullptr ? make_system_pressure() : nullptr),
      source_(parts.source == nullptr ? *own_source_ : *parts.source),
      clock_(parts.clock == nullptr ? system_clock() : *parts.clock),
      rule_(available_bytes, plan_bytes),
      states_(parts.loader.segments().size(), State::here),
      here_(parts.loader.cache().groups(), 0) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    here_[parts.loader.segments()[i].group] += parts.loader.segments()[i].slots;
    figures_.bytes_now += slots_bytes(i);
  }
  figures_.bytes_most = figures_.bytes_least = figures_.bytes_now;
  idle_ = to_leave() == none;
  figures_.waiting_unknown = source_.waiting_unknown();
  if (!figures_.waiting_unknown.empty()) log_info("guard: " + figures_.waiting_unknown);
}

GuardFigures PoolGuard::figures() const { return figures_; }

std::uint64_t PoolGuard::segment_bytes(std::size_t index) const noexcept {
  return parts_.memory.segments()[parts_.loader.segments()[index].buffer].size();
}

std::uint64_t PoolGuard::slots_bytes(std::size_t index) const noexcept {
  const PoolSegment& segment = parts_.loader.segments()[index];
  return segment.slots * parts_.loader.slot_bytes(segment);
}

void PoolGuard::tick() noexcept {
  if (idle_) return;
  const std::uint64_t now = clock_.now_ns();
  if (now < due_ns_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || now < due_ns_.load(std::memory_order_relaxed)) return;
  look(now);
}

void PoolGuard::look(std::uint64_t now_ns) {
  finish_leaving();
  const GuardRule::Verdict verdict = rule_.judge(now_ns, source_.sample());
  if (verdict.give_bytes > leaving_bytes_) {
    shrink(verdict.give_bytes - leaving_bytes_, verdict.cause);
    finish_leaving();
  } else if (verdict.take_bytes > 0) {
    grow(verdict.take_bytes, now_ns);
  }
  const bool often = verdict.look_often || leaving_bytes_ > 0;
  due_ns_.store(now_ns + (often ? GuardRule::look_often_ns : GuardRule::look_ns),
                std::memory_order_relaxed);
}

// The last segment of the group that holds the largest share of its experts; none where no group
// can do without one.
std::size_t PoolGuard::to_leave() const noexcept {
  const std::span<const PoolSegment> segments = parts_.loader.segments();
  const ExpertCache& cache = parts_.loader.cache();
  std::size_t best = none;
  double best_share = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const PoolSegment& of = segments[i];
    if (states_[i] != State::here || here_[of.group] < cache.slots_least(of.group) + of.slots)
      continue;
    const double share = static_cast<double>(here_[of.group]) / parts_.loader.experts(of.group);
    if (best != none && share < best_share) continue;
    best = i;
    best_share = share;
  }
  return best;
}

// The first segment that is gone of the group that holds the smallest share of its experts.
std::size_t PoolGuard::to_return() const noexcept {
  std::size_t best = none;
  double best_share = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i] != State::gone) continue;
    const std::uint32_t group = parts_.loader.segments()[i].group;
    const double share = static_cast<double>(here_[group]) / parts_.loader.experts(group);
    if (best != none && share >= best_share) continue;
    best = i;
    best_share = share;
  }
  return best;
}

void PoolGuard::shrink(std::uint64_t bytes, PressureCause cause) {
  cause_ = cause;
  for (std::uint64_t given = 0; given < bytes && !figures_.stuck;) {
    const std::size_t index = to_leave();
    if (index == none) return;
    const PoolSegment& segment = parts_.loader.segments()[index];
    MILLRACE_CHECK(parts_.loader.retire(segment));
    states_[index] = State::leaving;
    here_[segment.group] -= segment.slots;
    leaving_bytes_ += segment_bytes(index);
    given += segment_bytes(index);
  }
}

// Gives back what nobody holds any more.
void PoolGuard::finish_leaving() {
  for (std::size_t i = 0; leaving_bytes_ > 0 && i < states_.size(); ++i) {
    const PoolSegment& segment = parts_.loader.segments()[i];
    if (states_[i] != State::leaving || !parts_.loader.vacated(segment)) continue;
    leaving_bytes_ -= segment_bytes(i);
    if (give_back(i)) {
      states_[i] = State::gone;
      ++figures_.shrinks;
      ++figures_.by_cause[static_cast<std::size_t>(cause_)];
      figures_.bytes_now -= slots_bytes(i);
      figures_.bytes_least = std::min(figures_.bytes_least, figures_.bytes_now);
      log("shrunk", i, pressure_cause_text(cause_));
    } else {
      states_[i] = State::here;
      here_[segment.group] += segment.slots;
      parts_.loader.restore(segment);
    }
  }
}

// Unregistered first: pages that the kernel holds for reads are not freed by anything.
bool PoolGuard::give_back(std::size_t index) {
  const std::uint32_t buffer = parts_.loader.segments()[index].buffer;
  std::string refusal;
  if (parts_.scheduler.register_buffer(buffer, false)) {
    refusal = "io_uring does not let go of a buffer";
  } else if (const Status given = parts_.memory.give_back(buffer); !given) {
    refusal = given.error().what;
    parts_.scheduler.register_buffer(buffer, true);
  }
  if (refusal.empty()) return true;
  figures_.stuck = true;
  log_warning("guard: the pool cannot shrink: " + refusal);
  return false;
}

void PoolGuard::grow(std::uint64_t bytes, std::uint64_t now_ns) {
  const std::size_t index = to_return();
  if (index == none || segment_bytes(index) > bytes) return;
  const PoolSegment& segment = parts_.loader.segments()[index];
  if (const Status taken = parts_.memory.take_again(segment.buffer); !taken) {
    ++figures_.refused;
    rule_.failed_to_grow(now_ns);
    log_info("guard: the pool stays small: " + taken.error().what);
    return;
  }
  parts_.scheduler.register_buffer(segment.buffer, true);  // else its reads are plain ones
  states_[index] = State::here;
  here_[segment.group] += segment.slots;
  ++figures_.grows;
  figures_.bytes_now += slots_bytes(index);
  parts_.loader.restore(segment);
  rule_.grew(now_ns);
  log("grown", index, "memory is free again");
}

// The first shrink is a warning, so that a slower run is no riddle; the rest is for -v.
void PoolGuard::log(const char* what, std::size_t index, const std::string& why) {
  const std::string text =
      fmt::format("guard: pool {} by {} to {}: {}", what, format_bytes(slots_bytes(index)),
                  format_bytes(figures_.bytes_now), why);
  if (warned_) log_info(text);
  else log_warning(text);
  warned_ = true;
}

}  // namespace millrace
