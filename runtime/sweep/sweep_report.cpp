// What a sweep looks like: a table, JSON, a picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/base/counted.h"
#include "runtime/base/hash.h"
#include "runtime/base/units.h"
#include "runtime/plot/plot.h"
#include "runtime/sweep/sweep.h"

namespace millrace {

namespace {

constexpr double negligible = 20;      // a floor so far above the memory's: next to nothing missing
constexpr std::size_t curves_max = 8;  // that a picture can tell apart

std::string number(double value) {
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
}
std::string percent(double share) { return share < 0 ? "-" : fmt::format("{:.0f} %", 100 * share); }

// "threads" of "--threads".
std::string name_of(const SweepAxis& axis) {
  return axis.flag.substr(std::min(axis.flag.size(), axis.flag.find_first_not_of('-')));
}

bool swept(const SweepOptions& options, std::size_t axis) {
  const auto& first = options.settings.front().values[axis];
  return std::any_of(options.settings.begin(), options.settings.end(),
                     [&](const SweepSetting& setting) { return setting.values[axis] != first; });
}

// The values of what is swept, but for one axis: "25%, lru".
std::string label(const SweepOptions& options, const SweepSetting& setting, std::size_t but) {
  std::string text;
  for (std::size_t axis = 0; axis < options.axes.size(); ++axis) {
    if (axis == but || !swept(options, axis)) continue;
    const std::string& value = setting.values[axis];
    const bool bare = value.find_first_not_of("0123456789") == std::string::npos;
    text += (text.empty() ? "" : ", ") + (bare ? name_of(options.axes[axis]) + " " : "") + value;
  }
  return text;
}

std::string fixed_values(const SweepOptions& options) {
  std::string text;
  for (std::size_t axis = 0; axis < options.axes.size(); ++axis)
    if (!swept(options, axis))
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(options.axes[axis]),
                          options.settings.front().values[axis]);
  return text;
}

std::string range(const Spread& spread) {
  return fmt::format("{} to {}", number(spread.low), number(spread.high));
}

double median(const SweepRow& row, double SweepRun::*figure) {
  return spread_of(row.runs, figure).median;
}

std::string figures_of(const SweepRow& row) {
  const double floor = median(row, &SweepRun::floor_tokens_per_second);
  const double memory = median(row, &SweepRun::memory_tokens_per_second);
  const bool missing = floor > 0 && floor < negligible * memory;
  return fmt::format(
      " {:>9} {:>16} {:>6} {:>11} {:>8} {:>9} {:>6} {:>9}",
      number(median(row, &SweepRun::tokens_per_second)),
      range(spread_of(row.runs, &SweepRun::tokens_per_second)),
      percent(median(row, &SweepRun::hit_rate)),
      format_bytes(static_cast<std::uint64_t>(median(row, &SweepRun::bytes_per_token))),
      percent(median(row, &SweepRun::stalled_share)), missing ? number(floor) : "-",
      missing ? percent(median(row, &SweepRun::floor_share)) : "-", number(memory));
}

// Width of each column of swept values; 0: not swept.
std::vector<std::size_t> widths_of(const SweepOptions& options) {
  std::vector<std::size_t> widths(options.axes.size(), 0);
  for (std::size_t axis = 0; axis < options.axes.size(); ++axis) {
    if (!swept(options, axis)) continue;
    widths[axis] = name_of(options.axes[axis]).size();
    for (const SweepSetting& setting : options.settings)
      widths[axis] = std::max(widths[axis], setting.values[axis].size());
  }
  return widths;
}

std::string state_text(const SweepResult& result) {
  std::vector<std::uint64_t> states;
  for (const SweepRow& row : result.rows)
    for (const SweepRun& run : row.runs)
      if (std::find(states.begin(), states.end(), run.state_hash) == states.end())
        states.push_back(run.state_hash);
  return states.size() == 1 ? hash_hex(states.front()) : std::string();
}

Json spread_json(const SweepRow& row, double SweepRun::*figure) {
  const Spread spread = spread_of(row.runs, figure);
  return Json::object()
      .set("median", spread.median)
      .set("low", spread.low)
      .set("high", spread.high);
}

// Null where the figure is not known.
Json median_json(const SweepRow& row, double SweepRun::*figure) {
  const double value = median(row, figure);
  return value > 0 ? Json(value) : Json();
}

Json row_json(const SweepOptions& options, const SweepResult& result, std::size_t index) {
  const SweepRow& row = result.rows[index];
  Json json = Json::object();
  for (std::size_t axis = 0; axis < options.axes.size(); ++axis)
    json.set(name_of(options.axes[axis]), options.settings[index].values[axis]);
  json.set("refused", row.refused.empty() ? Json() : Json(row.refused));
  json.set("runs", std::uint64_t{row.runs.size()});
  if (row.runs.empty()) return json;
  json.set("tokens_per_second", spread_json(row, &SweepRun::tokens_per_second));
  json.set("hit_rate", median(row, &SweepRun::hit_rate));
  json.set("bytes_per_token", median(row, &SweepRun::bytes_per_token));
  json.set("stalled_share", median(row, &SweepRun::stalled_share));
  json.set("floor_tokens_per_second", median_json(row, &SweepRun::floor_tokens_per_second));
  json.set("floor_share", median_json(row, &SweepRun::floor_share));
  json.set("memory_tokens_per_second", median_json(row, &SweepRun::memory_tokens_per_second));
  json.set("predicted_tokens_per_second", median_json(row, &SweepRun::predicted));
  json.set("device_share", median_json(row, &SweepRun::device_share));
  return json;
}

// What the tighter of drive and memory allows.
double limit_of(const SweepRow& row) {
  const double memory = median(row, &SweepRun::memory_tokens_per_second);
  const double drive = median(row, &SweepRun::floor_tokens_per_second);
  return drive > 0 ? std::min(drive, memory) : memory;
}

constexpr const char* limit_text =
    "limit: missing experts at the drive's rate, all weights at the memory's";

// One curve per combination of everything but the threads, with its limit dashed.
std::string threads_svg(const SweepOptions& options, const SweepResult& result, std::size_t axis) {
  std::map<std::string, std::map<double, std::size_t>> curves;  // by label, then threads
  std::vector<std::string> order;
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    if (result.rows[i].runs.empty()) continue;
    const std::string name = label(options, options.settings[i], axis);
    if (!curves.contains(name)) order.push_back(name);
    curves[name][options.settings[i].config.threads] = i;
  }
  const bool too_many = order.size() > curves_max;
  if (too_many) order.resize(curves_max);
  plot::LinePlot picture;
  picture.title = fmt::format("Tokens per second by threads: {}", result.model);
  picture.subtitle = too_many ? fmt::format(
                                    "the first {} of {} settings; dashed: what drive and "
                                    "memory allow",
                                    curves_max, curves.size())
                              : std::string("dashed: the ") + limit_text;
  picture.x_title = "threads";
  picture.y_title = "tokens/s";
  for (const SweepSetting& setting : options.settings)
    picture.x_values.push_back(setting.config.threads);
  std::sort(picture.x_values.begin(), picture.x_values.end());
  picture.x_values.erase(std::unique(picture.x_values.begin(), picture.x_values.end()),
                         picture.x_values.end());
  for (const std::string& name : order) {
    plot::Series achieved, limit;
    achieved.name = name.empty() ? "achieved" : name;
    limit.name = name.empty() ? "limit" : name + ": limit";
    limit.dashed = true;
    limit.like = picture.series.size();
    for (const auto& [threads, index] : curves[name]) {
      const SweepRow& row = result.rows[index];
      achieved.points.push_back({threads, median(row, &SweepRun::tokens_per_second)});
      limit.points.push_back({threads, limit_of(row)});
    }
    picture.series.push_back(std::move(achieved));
    picture.series.push_back(std::move(limit));
  }
  return plot::line_plot_svg(picture);
}

std::string bars_svg(const SweepOptions& options, const SweepResult& result) {
  plot::BarPlot picture;
  picture.title = fmt::format("Tokens per second: {}", result.model);
  picture.subtitle = std::string("lines: the ") + limit_text;
  picture.value_title = "tokens/s";
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const SweepRow& row = result.rows[i];
    if (row.runs.empty()) continue;
    const std::string name = label(options, options.settings[i], options.axes.size());
    picture.bars.push_back({name.empty() ? "this setting" : name,
                            median(row, &SweepRun::tokens_per_second), limit_of(row)});
  }
  return plot::bar_plot_svg(picture);
}

}  // namespace

Spread spread_of(const std::vector<SweepRun>& runs, double SweepRun::*figure) {
  if (runs.empty()) return {};
  std::vector<double> values;
  for (const SweepRun& run : runs) values.push_back(run.*figure);
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double middle =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {values.front(), middle, values.back()};
}

std::string sweep_table(const SweepOptions& options, const SweepResult& result) {
  std::string text =
      fmt::format("  model      {} ({}), pool {}, trunk {}\n", result.model, result.architecture,
                  format_bytes(result.pool_bytes), format_bytes(result.trunk_bytes));
  text += fmt::format("  runs       {} each, after {} of warm-up; {} by turns\n",
                      counted(options.tokens, "decoded token"), options.warmup_tokens,
                      counted(options.repeat, "round"));
  if (const std::string fixed = fixed_values(options); !fixed.empty())
    text += "  fixed      " + fixed + "\n";
  text += "\n ";
  const std::vector<std::size_t> widths = widths_of(options);
  for (std::size_t axis = 0; axis < widths.size(); ++axis)
    if (widths[axis] > 0) text += fmt::format(" {:>{}}", name_of(options.axes[axis]), widths[axis]);
  text += fmt::format(" {:>9} {:>16} {:>6} {:>11} {:>8} {:>9} {:>6} {:>9}\n", "tokens/s", "range",
                      "hits", "read/token", "waiting", "floor", "share", "memory");
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const SweepRow& row = result.rows[i];
    text += " ";
    for (std::size_t axis = 0; axis < widths.size(); ++axis)
      if (widths[axis] > 0)
        text += fmt::format(" {:>{}}", options.settings[i].values[axis], widths[axis]);
    if (!row.refused.empty()) text += "  refused: " + row.refused;
    else if (row.runs.empty()) text += "  not run";
    else text += figures_of(row);
    text += "\n";
  }
  text +=
      "\n  floor: tokens/s if the drive delivered the missing experts and nothing else took time\n"
      "  (share: floor time of achieved time); memory: tokens/s if all weights of a token were\n"
      "  read from memory at the measured rate and nothing else took time. Medians of the "
      "rounds.\n";
  if (const std::string state = state_text(result); !state.empty())
    text += "  state      " + state + " in all runs\n";
  if (!result.same_state())
    text += "  note       the runs ended in different states, which must not be\n";
  for (const std::string& note : result.notes) text += "  note       " + note + "\n";
  return text;
}

Json sweep_json(const SweepOptions& options, const SweepResult& result) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < result.rows.size(); ++i) rows.push(row_json(options, result, i));
  Json notes = Json::array();
  for (const std::string& note : result.notes) notes.push(note);
  const std::string state = state_text(result);
  return Json::object()
      .set("model", result.model)
      .set("architecture", result.architecture)
      .set("pool_bytes", result.pool_bytes)
      .set("trunk_bytes", result.trunk_bytes)
      .set("tokens", options.tokens)
      .set("warmup_tokens", options.warmup_tokens)
      .set("repeat", options.repeat)
      .set("state_hash", state.empty() ? Json() : Json(state))
      .set("interrupted", result.interrupted ? Json(result.interrupted->what) : Json())
      .set("rows", std::move(rows))
      .set("notes", std::move(notes));
}

std::string sweep_svg(const SweepOptions& options, const SweepResult& result) {
  const bool any = std::any_of(result.rows.begin(), result.rows.end(),
                               [](const SweepRow& row) { return !row.runs.empty(); });
  if (!any) return {};
  for (std::size_t axis = 0; axis < options.axes.size(); ++axis)
    if (options.axes[axis].flag == "--threads" && swept(options, axis))
      return threads_svg(options, result, axis);
  return bars_svg(options, result);
}

}  // namespace millrace
