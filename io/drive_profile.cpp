#include "io/drive_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "io/write_file.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::size_t profile_bytes_max = 256 * KiB;
constexpr std::size_t entries_max = 1024;          // of grid and ways
constexpr double rate_min = 1e6, rate_max = 2e11;  // bytes per second: below and above any drive
constexpr double latency_us_max = 60e6;
constexpr double cpu_ms_max = 1e9;  // for a GB

Json rate_json(const ReadRate& rate) {
  return Json::object()
      .set("piece_bytes", rate.piece_bytes)
      .set("depth", rate.depth)
      .set("bytes_per_second", rate.bytes_per_second)
      .set("p50_us", rate.p50_us)
      .set("p99_us", rate.p99_us)
      .set("user_ms_per_gb", rate.user_ms_per_gb)
      .set("system_ms_per_gb", rate.system_ms_per_gb)
      .set("device_share", rate.device_share < 0 ? Json() : Json(rate.device_share));
}

Error bad(const std::string& what) { return Error{ErrorCode::format, what}; }

// Reads checked values out of an object; the first failure stays.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  double number(const char* key, double low, double high) {
    double value = 0;
    const Json* found = object_.find(key);
    if (found == nullptr || !found->get_number(value) || !(value >= low && value <= high))
      fail(key);
    return value;
  }
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) {
    std::int64_t value = 0;
    const Json* found = object_.find(key);
    if (found == nullptr || !found->get_integer(value) || value < low || value > high) fail(key);
    return value;
  }
  std::string text(const char* key) {
    const Json* found = object_.find(key);
    if (found == nullptr || found->as_string() == nullptr) {
      fail(key);
      return {};
    }
    return printable(*found->as_string(), 400);
  }
  bool flag(const char* key) {
    const Json* found = object_.find(key);
    if (found == nullptr || found->as_bool() == nullptr) {
      fail(key);
      return false;
    }
    return *found->as_bool();
  }
  Json::Array list(const char* key) {
    const Json* found = object_.find(key);
    if (found == nullptr || found->as_array() == nullptr ||
        found->as_array()->size() > entries_max) {
      fail(key);
      return {};
    }
    return *found->as_array();
  }
  Status status() const {
    if (failed_.empty()) return {};
    return bad("'" + failed_ + "' is missing or out of bounds");
  }
  void fail(const char* key) {
    if (failed_.empty()) failed_ = key;
  }

 private:
  const Json& object_;
  std::string failed_;
};

// Floor measures powers of two; a run multiplies them by a depth.
std::uint64_t piece_field(Fields& fields) {
  constexpr std::int64_t most = std::int64_t{64} * MiB;
  const auto piece = static_cast<std::uint64_t>(fields.integer("piece_bytes", 512, most));
  if (!std::has_single_bit(piece)) fields.fail("piece_bytes");
  return piece;
}

Result<ReadRate> parse_rate(const Json& json) {
  Fields fields(json);
  ReadRate rate;
  rate.piece_bytes = piece_field(fields);
  rate.depth = static_cast<std::uint32_t>(fields.integer("depth", 1, limits::queue_depth_max));
  rate.bytes_per_second = fields.number("bytes_per_second", rate_min, rate_max);
  rate.p50_us = fields.number("p50_us", 0, latency_us_max);
  rate.p99_us = fields.number("p99_us", rate.p50_us, latency_us_max);
  rate.user_ms_per_gb = fields.number("user_ms_per_gb", 0, cpu_ms_max);
  rate.system_ms_per_gb = fields.number("system_ms_per_gb", 0, cpu_ms_max);
  const Json* share = json.find("device_share");
  if (share != nullptr && !share->is_null())
    rate.device_share = fields.number("device_share", 0, rate_max);
  MILLRACE_TRY(fields.status());
  return rate;
}

Result<WayRate> parse_way(const Json& json) {
  Fields fields(json);
  WayRate way;
  way.name = fields.text("name");
  way.direct = fields.flag("direct");
  const Json* refused = json.find("refused");
  if (refused != nullptr && !refused->is_null()) way.refused = fields.text("refused");
  MILLRACE_TRY(fields.status());
  if (!way.refused.empty()) return way;
  MILLRACE_ASSIGN(way.rate, parse_rate(json));
  return way;
}

Json way_json(const WayRate& way) {
  Json json = way.refused.empty() ? rate_json(way.rate) : Json::object();
  json.set("name", way.name);
  json.set("direct", way.direct);
  json.set("refused", way.refused.empty() ? Json() : Json(way.refused));
  return json;
}

// Errors name the file.
Result<DriveProfile> profile_of(const std::string& path, const Drive& drive) {
  MILLRACE_ASSIGN(const std::string text, read_whole_file(path, profile_bytes_max));
  const auto prefixed = [&](const std::string& what) {
    return bad(fmt::format("{}: {}", printable(path, 4096), what));
  };
  auto profile = parse_profile(text);
  if (!profile) return prefixed(profile.error().what);
  if (profile->drive_key != drive.key)
    return prefixed(fmt::format("is of another drive ({})", profile->drive_name));
  constexpr std::int64_t clocks_differ = 86'400;
  if (profile->measured_at > static_cast<std::int64_t>(std::time(nullptr)) + clocks_differ)
    return prefixed("'measured_at' lies in the future");
  if (profile->page_cache) return prefixed("'page_cache' is true: it is no profile of a drive");
  return profile;
}

}  // namespace

Json profile_json(const DriveProfile& profile) {
  Json grid = Json::array();
  for (const ReadRate& rate : profile.grid) grid.push(rate_json(rate));
  Json ways = Json::array();
  for (const WayRate& way : profile.ways) ways.push(way_json(way));
  return Json::object()
      .set("version", DriveProfile::version)
      .set("drive", profile.drive_key)
      .set("drive_name", profile.drive_name)
      .set("drive_model", profile.drive_model)
      .set("file_system", profile.file_system)
      .set("measured_at", profile.measured_at)
      .set("thorough", profile.thorough)
      .set("direct", profile.direct)
      .set("page_cache", profile.page_cache)
      .set("file_bytes", profile.file_bytes)
      .set("noise", profile.noise)
      .set("piece_bytes", profile.piece_bytes)
      .set("queue_depth", profile.queue_depth)
      .set("bytes_per_second", profile.bytes_per_second)
      .set("slowest_bytes_per_second", profile.slowest_bytes_per_second)
      .set("fastest_bytes_per_second", profile.fastest_bytes_per_second)
      .set("grid_way", profile.grid_way)
      .set("grid", std::move(grid))
      .set("ways", std::move(ways));
}

Result<DriveProfile> parse_profile(const std::string& text) {
  auto json = Json::parse(text, {.bytes_max = profile_bytes_max, .depth_max = 8});
  if (!json) return bad("is not a profile: " + json.error().what);
  Fields fields(*json);
  if (fields.integer("version", 0, INT64_MAX) != DriveProfile::version && fields.status())
    return bad("is of another version of millrace");
  DriveProfile profile;
  profile.drive_key = fields.text("drive");
  profile.drive_name = fields.text("drive_name");
  profile.drive_model = fields.text("drive_model");
  profile.file_system = fields.text("file_system");
  profile.measured_at = fields.integer("measured_at", 1, INT64_MAX);
  profile.thorough = fields.flag("thorough");
  profile.direct = fields.flag("direct");
  profile.page_cache = fields.flag("page_cache");
  profile.file_bytes = static_cast<std::uint64_t>(fields.integer("file_bytes", 1, INT64_MAX));
  profile.noise = fields.number("noise", 0, 1);
  profile.piece_bytes = piece_field(fields);
  profile.queue_depth =
      static_cast<std::uint32_t>(fields.integer("queue_depth", 1, limits::queue_depth_max));
  const double middle = fields.number("bytes_per_second", rate_min, rate_max);
  profile.bytes_per_second = middle;
  profile.slowest_bytes_per_second = fields.number("slowest_bytes_per_second", rate_min, middle);
  profile.fastest_bytes_per_second = fields.number("fastest_bytes_per_second", middle, rate_max);
  profile.grid_way = fields.text("grid_way");
  const Json::Array grid = fields.list("grid");
  const Json::Array ways = fields.list("ways");
  MILLRACE_TRY(fields.status());
  for (const Json& cell : grid) {
    MILLRACE_ASSIGN(const ReadRate rate, parse_rate(cell));
    profile.grid.push_back(rate);
  }
  for (const Json& one : ways) {
    MILLRACE_ASSIGN(WayRate way, parse_way(one));
    profile.ways.push_back(std::move(way));
  }
  return profile;
}

std::string profile_path(const std::string& folder, const std::string& drive_key) {
  return folder + "/drive-" + hash_hex(hash64(drive_key.data(), drive_key.size())) + ".json";
}

Status save_profile(const std::string& folder, const DriveProfile& profile) {
  const std::string text = profile_json(profile).dump(1) + "\n";
  // What load_profile() would refuse must not take the place of a good one.
  const auto readable = parse_profile(text);
  if (!readable) return bad("this profile is not sound: " + readable.error().what);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return Error{ErrorCode::io, fmt::format("{}: the folder cannot be made: {}",
                                            printable(folder, 4096), error.message())};
  return replace_file(profile_path(folder, profile.drive_key), text);
}

std::optional<DriveProfile> load_profile(const std::string& folder, const Drive& drive) {
  if (folder.empty()) return std::nullopt;
  const std::string path = profile_path(folder, drive.key);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  auto profile = profile_of(path, drive);
  if (profile) return *std::move(profile);
  log_warning(profile.error().what +
              ": this drive profile is ignored: measure the drive again with `millrace floor`");
  return std::nullopt;
}

double profile_rate(const DriveProfile& profile, std::uint64_t piece_bytes, std::uint32_t depth) {
  if (piece_bytes == profile.piece_bytes && depth == profile.queue_depth)
    return profile.bytes_per_second;
  double nearest = INFINITY;
  double rate = profile.bytes_per_second;
  for (const ReadRate& cell : profile.grid) {
    const double away = std::abs(std::log2(static_cast<double>(cell.piece_bytes) /
                                           static_cast<double>(piece_bytes))) +
                        std::abs(std::log2(static_cast<double>(cell.depth) / depth));
    if (away >= nearest) continue;
    nearest = away;
    rate = cell.bytes_per_second;
  }
  return rate;
}

std::size_t best_cell(const std::vector<ReadRate>& grid, double tolerance,
                      std::uint64_t read_bytes) {
  MILLRACE_CHECK(!grid.empty());
  std::uint64_t smallest = UINT64_MAX;
  for (const ReadRate& rate : grid) smallest = std::min(smallest, rate.piece_bytes);
  // A read that is no multiple of a size is best judged by the next larger one: it goes in one
  // piece.
  const std::uint64_t next = read_bytes < UINT64_MAX / 2 ? 2 * read_bytes - 1 : UINT64_MAX;
  const std::uint64_t largest = std::max(next, smallest);
  double fastest = 0;
  for (const ReadRate& rate : grid)
    if (rate.piece_bytes <= largest) fastest = std::max(fastest, rate.bytes_per_second);
  static constexpr std::uint32_t depth_counted = 4;
  const auto cost = [](const ReadRate& rate) {
    return std::tuple(rate.piece_bytes < 1 * MiB,
                      rate.piece_bytes * std::max(rate.depth, depth_counted), rate.depth);
  };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    if (grid[i].piece_bytes > largest) continue;
    if (grid[i].bytes_per_second < (1 - tolerance) * fastest) continue;
    if (!best || cost(grid[i]) < cost(grid[*best])) best = i;
  }
  return *best;
}

}  // namespace millrace
