#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/base/units.h"
#include "runtime/floor/floor.h"
#include "runtime/plot/plot.h"

namespace millrace {

namespace {

const ReadRate* find_cell(const DriveProfile& profile, std::uint64_t piece, std::uint32_t depth) {
  for (const ReadRate& rate : profile.grid)
    if (rate.piece_bytes == piece && rate.depth == depth) return &rate;
  return nullptr;
}

struct Axes {
  std::set<std::uint64_t> pieces;
  std::set<std::uint32_t> depths;
  explicit Axes(const DriveProfile& profile) {
    for (const ReadRate& rate : profile.grid) {
      pieces.insert(rate.piece_bytes);
      depths.insert(rate.depth);
    }
  }
};

std::string drive_text(const DriveProfile& profile) {
  std::string text = profile.drive_name;
  if (!profile.drive_model.empty()) text += " (" + profile.drive_model + ")";
  if (!profile.file_system.empty()) text += ", " + profile.file_system;
  return text;
}

std::string grid_rows(const DriveProfile& profile) {
  const Axes axes(profile);
  std::string text = fmt::format("  {:>10} |", "GB/s");
  for (const std::uint32_t depth : axes.depths) text += fmt::format(" depth {:>2}", depth);
  text += "\n";
  for (const std::uint64_t piece : axes.pieces) {
    text += fmt::format("  {:>10} |", format_bytes(piece));
    for (const std::uint32_t depth : axes.depths) {
      const ReadRate* rate = find_cell(profile, piece, depth);
      text += rate == nullptr ? fmt::format(" {:>8}", "-")
                              : fmt::format(" {:>8.2f}", rate->bytes_per_second / 1e9);
    }
    text += "\n";
  }
  return text;
}

std::string way_rows(const DriveProfile& profile) {
  std::string text = fmt::format("  {:<38} {:>6} {:>9} {:>9} {:>10} {:>12}\n", "reader", "GB/s",
                                 "p50 us", "p99 us", "user ms/GB", "system ms/GB");
  for (const WayRate& way : profile.ways) {
    if (!way.refused.empty()) {
      text += fmt::format("  {:<38} refused: {}\n", way.name, way.refused);
      continue;
    }
    text += fmt::format("  {:<38} {:>6.2f} {:>9.0f} {:>9.0f} {:>10.1f} {:>12.1f}", way.name,
                        way.rate.bytes_per_second / 1e9, way.rate.p50_us, way.rate.p99_us,
                        way.rate.user_ms_per_gb, way.rate.system_ms_per_gb);
    if (way.rate.device_share >= 0 && way.rate.device_share < 0.9)
      text += fmt::format("  ({:.0f} % from the page cache)", 100 * (1 - way.rate.device_share));
    text += "\n";
  }
  return text;
}

}  // namespace

std::string floor_table(const FloorResult& result) {
  const DriveProfile& profile = result.profile;
  std::string text = fmt::format("  drive      {}\n", drive_text(profile));
  text += fmt::format("  read       {} of a file, {}, {}\n\n", format_bytes(profile.file_bytes),
                      profile.direct ? "direct" : "through the page cache", profile.grid_way);
  text += grid_rows(profile) + "\n";
  text += way_rows(profile) + "\n";
  text += fmt::format(
      "  best       {} pieces, depth {}: {:.2f} GB/s ({:.2f} to {:.2f} in repeats)\n",
      format_bytes(profile.piece_bytes), profile.queue_depth, profile.bytes_per_second / 1e9,
      profile.slowest_bytes_per_second / 1e9, profile.fastest_bytes_per_second / 1e9);
  for (const std::string& warning : result.warnings) text += "  note       " + warning + "\n";
  return text;
}

std::string floor_svg(const DriveProfile& profile) {
  const Axes axes(profile);
  plot::HeatMap map;
  map.title = fmt::format("Read floor of {}: {:.2f} GB/s", drive_text(profile),
                          profile.bytes_per_second / 1e9);
  map.subtitle = fmt::format("GB/s, {}, {}", profile.grid_way,
                             profile.direct ? "direct" : "through the page cache");
  map.x_title = "reads in flight";
  map.y_title = "piece";
  for (const std::uint32_t depth : axes.depths) map.columns.push_back(fmt::format("{}", depth));
  for (const std::uint64_t piece : axes.pieces) {
    map.rows.push_back(format_bytes(piece));
    for (const std::uint32_t depth : axes.depths) {
      const ReadRate* rate = find_cell(profile, piece, depth);
      if (piece == profile.piece_bytes && depth == profile.queue_depth)
        map.marked = map.values.size();
      map.values.push_back(rate == nullptr ? NAN : rate->bytes_per_second / 1e9);
    }
  }
  return plot::heat_map_svg(map);
}

}  // namespace millrace
