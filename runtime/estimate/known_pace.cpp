#include "runtime/estimate/known_pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "io/write_file.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::uint64_t pace_bytes_max = 64 * KiB;
constexpr double drive_rate_max = 1e12;  // bytes per second
constexpr double compute_seconds_max = 1e5;
constexpr double run_share_min = 0.25, run_share_max = 1.5;  // of what a drive gives when asked
constexpr double pace_range = 0.15;  // how far a drive is expected to stray from its pace

std::string path_of(const PaceKey& key) {
  return fmt::format("{}/pace-{}-{}-{}.json", key.folder, key.model, key.isa, key.threads);
}

// The rate of another drive is none.
Result<KnownPace> parse_pace(const std::string& text, const std::string& drive) {
  MILLRACE_ASSIGN(const Json json, Json::parse(text));
  const Json* const seconds = json.find("compute_seconds");
  const Json* const runs = json.find("runs");
  KnownPace pace;
  std::int64_t count = 0;
  const bool sound = seconds != nullptr && seconds->get_number(pace.compute_seconds) &&
                     runs != nullptr && runs->get_integer(count) && pace.compute_seconds > 0 &&
                     pace.compute_seconds <= compute_seconds_max && count >= 1 &&
                     count <= UINT32_MAX;
  if (!sound) return Error{ErrorCode::format, "it is no pace"};
  pace.runs = static_cast<std::uint32_t>(count);
  const Json* const name = json.find("drive");
  const Json* const rate = json.find("drive_bytes_per_second");
  const std::string* const of = name == nullptr ? nullptr : name->as_string();
  if (of == nullptr || *of != drive || rate == nullptr) return pace;
  if (!rate->get_number(pace.drive_bytes_per_second) ||
      !(pace.drive_bytes_per_second > 0 && pace.drive_bytes_per_second <= drive_rate_max))
    return Error{ErrorCode::format, "it has no rate of a drive"};
  const Json* const asked = json.find("asked_bytes_per_second");
  if (asked != nullptr &&
      (!asked->get_number(pace.asked_bytes_per_second) ||
       !(pace.asked_bytes_per_second > 0 && pace.asked_bytes_per_second <= drive_rate_max)))
    return Error{ErrorCode::format, "it has no rate of a drive that was asked"};
  return pace;
}

// The mean of what was known and what is new, or what there is of both.
double mean_of(double before, double now) noexcept {
  return before > 0 && now > 0 ? (before + now) / 2 : std::max(before, now);
}

double middle_of(double a, double b, double c) noexcept {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

}  // namespace

std::optional<KnownPace> load_pace(const PaceKey& key) {
  if (key.folder.empty()) return std::nullopt;
  const std::string path = path_of(key);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const auto text = read_whole_file(path, pace_bytes_max);
  auto pace = text ? parse_pace(*text, key.drive) : Result<KnownPace>(text.error());
  if (pace) return *pace;
  log_warning(fmt::format("{}: ignored: {}", printable(path, 4096), pace.error().what));
  return std::nullopt;
}

Status save_pace(const PaceKey& key, const PaceLesson& lesson) {
  if (key.folder.empty()) return {};
  const auto known = load_pace(key);
  const double took = std::clamp(lesson.compute_seconds, 1e-9, compute_seconds_max);
  Json json = Json::object()
                  .set("compute_seconds", known ? (known->compute_seconds + took) / 2 : took)
                  .set("runs", known ? known->runs + 1 : 1u);
  const KnownPace before = known.value_or(KnownPace{});
  const double now = std::min(lesson.drive_bytes_per_second, drive_rate_max);
  const double rate = mean_of(before.drive_bytes_per_second, now);
  if (rate > 0) json.set("drive", key.drive).set("drive_bytes_per_second", rate);
  // Only of runs that have both, for one is held against the other.
  const double asked = std::min(lesson.asked_bytes_per_second, drive_rate_max);
  const double kept = now > 0 && asked > 0 ? mean_of(before.asked_bytes_per_second, asked)
                                           : before.asked_bytes_per_second;
  if (rate > 0 && kept > 0) json.set("asked_bytes_per_second", kept);
  std::error_code error;
  std::filesystem::create_directories(key.folder, error);
  return replace_file(path_of(key), json.dump(1) + "\n");
}

ComputeSpeed paced(const ComputeSpeed& measured, const TokenTimes& by_weights,
                   const std::optional<KnownPace>& pace) noexcept {
  if (!pace) return measured;
  const double factor = std::clamp(pace->compute_seconds / (by_weights.trunk + by_weights.experts),
                                   pace_factor_min, pace_factor_max);
  ComputeSpeed slower = measured;
  slower.expert_bytes_per_second /= factor;
  slower.trunk_bytes_per_second /= factor;
  return slower;
}

DriveRange paced(DriveRange profiled, const std::optional<KnownPace>& pace, double now) noexcept {
  const double in_runs = pace ? pace->drive_bytes_per_second : 0;
  if (in_runs <= 0 && now <= 0) return profiled;
  const double asked = pace ? pace->asked_bytes_per_second : 0;
  const double share =
      in_runs > 0 && asked > 0 ? std::clamp(in_runs / asked, run_share_min, run_share_max) : 1;
  const double by_profile = profiled.measured ? share * profiled.middle : 0;
  now *= share;
  DriveRange range = profiled;
  if (now <= 0) range.middle = in_runs;
  else if (in_runs > 0 && by_profile > 0) range.middle = middle_of(in_runs, by_profile, now);
  else range.middle = std::sqrt(now * (in_runs > 0 ? in_runs : by_profile > 0 ? by_profile : now));
  range.low = std::min(range.low, (1 - pace_range) * range.middle);
  range.high = std::max(range.high, (1 + pace_range) * range.middle);
  range.measured = true;
  return range;
}

}  // namespace millrace
