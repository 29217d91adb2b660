#include "runtime/estimate/known_pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "io/write_file.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::uint64_t pace_bytes_max = 64 * KiB;

std::string path_of(const PaceKey& key) {
  return fmt::format("{}/pace-{}-{}-{}.json", key.folder, key.model, key.isa, key.threads);
}

Result<KnownPace> parse_pace(const std::string& text) {
  MILLRACE_ASSIGN(const Json json, Json::parse(text));
  const Json* const factor = json.find("factor");
  const Json* const runs = json.find("runs");
  KnownPace pace;
  std::int64_t count = 0;
  const bool sound = factor != nullptr && factor->get_number(pace.factor) && runs != nullptr &&
                     runs->get_integer(count) && pace.factor >= pace_factor_min &&
                     pace.factor <= pace_factor_max && count >= 1 && count <= UINT32_MAX;
  if (!sound) return Error{ErrorCode::format, "it is no pace"};
  pace.runs = static_cast<std::uint32_t>(count);
  return pace;
}

}  // namespace

std::optional<KnownPace> load_pace(const PaceKey& key) {
  if (key.folder.empty()) return std::nullopt;
  const std::string path = path_of(key);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const auto text = read_whole_file(path, pace_bytes_max);
  auto pace = text ? parse_pace(*text) : Result<KnownPace>(text.error());
  if (pace) return *pace;
  log_warning(fmt::format("{}: ignored: {}", printable(path, 4096), pace.error().what));
  return std::nullopt;
}

Status save_pace(const PaceKey& key, const TokenTimes& times, double compute_seconds) {
  if (key.folder.empty()) return {};
  const double took =
      std::clamp(compute_seconds / (times.trunk + times.experts), pace_factor_min, pace_factor_max);
  const auto known = load_pace(key);
  const double factor = known ? (known->factor + took) / 2 : took;
  const Json json = Json::object().set("factor", factor).set("runs", known ? known->runs + 1 : 1u);
  std::error_code error;
  std::filesystem::create_directories(key.folder, error);
  return replace_file(path_of(key), json.dump(1) + "\n");
}

ComputeSpeed paced(ComputeSpeed measured, const std::optional<KnownPace>& pace) noexcept {
  if (!pace) return measured;
  measured.expert_bytes_per_second /= pace->factor;
  measured.trunk_bytes_per_second /= pace->factor;
  return measured;
}

}  // namespace millrace
