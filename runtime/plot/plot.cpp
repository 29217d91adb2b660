#include "runtime/plot/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"
#include "runtime/plot/svg.h"

namespace millrace::plot {

namespace {

constexpr double top = 64;  // of the drawing, below title and subtitle
constexpr std::string_view grid_colour = "#e4e4e4";

void write_titles(Svg& svg, const std::string& title, const std::string& subtitle) {
  svg.text(16, 26, title, {.size = 17, .bold = true});
  svg.text(16, 46, subtitle, {.size = 12, .colour = "#666666"});
}

// Room for labels on the left: about 7 pixels per character, within reason.
double label_room(std::size_t longest) {
  return std::clamp(7.0 * static_cast<double>(longest) + 20, 60.0, 360.0);
}

struct Scale {
  double low = 0, high = 1;
  double from = 0, to = 1;  // pixels
  double operator()(double value) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

// The ticks around the values, and the scale that they span.
struct Axis {
  std::vector<double> ticks;
  Scale scale;
  std::string text(double tick) const { return tick_text(tick, ticks[1] - ticks[0]); }
};

Axis make_axis(double low, double high, double from, double to) {
  if (!(high > low)) high = low + std::max(1.0, std::abs(low));
  Axis axis;
  axis.ticks = round_ticks(low, high, 6);
  axis.scale = {axis.ticks.front(), axis.ticks.back(), from, to};
  return axis;
}

struct Extent {
  double x_low = INFINITY, x_high = -INFINITY, y_low = 0, y_high = -INFINITY;
};

Extent extent_of(const std::vector<Series>& series) {
  Extent extent;
  for (const Series& one : series) {
    for (const auto& [x, y] : one.points) {
      extent.x_low = std::min(extent.x_low, x);
      extent.x_high = std::max(extent.x_high, x);
      extent.y_low = std::min(extent.y_low, y);
      extent.y_high = std::max(extent.y_high, y);
    }
  }
  MILLRACE_CHECK(extent.x_low <= extent.x_high);
  return extent;
}

void draw_axes(Svg& svg, const Axis& x, const Axis& y) {
  const double left = x.scale.from, right = x.scale.to;
  for (const double tick : y.ticks) {
    const double at = y.scale(tick);
    svg.line(left, at, right, at, grid_colour);
    svg.text(left - 8, at + 4, y.text(tick), {.anchor = Anchor::end});
  }
  for (const double tick : x.ticks) {
    const double at = x.scale(tick);
    svg.line(at, y.scale.from, at, y.scale.from + 5, "#888888");
    svg.text(at, y.scale.from + 20, x.text(tick), {.anchor = Anchor::middle});
  }
  svg.line(left, y.scale.from, right, y.scale.from, "#888888");
}

}  // namespace

std::string heat_map_svg(const HeatMap& map) {
  constexpr double cell_width = 78, cell_height = 34;
  MILLRACE_CHECK(!map.columns.empty() && !map.rows.empty());
  MILLRACE_CHECK(map.values.size() == map.columns.size() * map.rows.size());
  std::size_t longest = 0;
  for (const std::string& row : map.rows) longest = std::max(longest, row.size());
  double largest = 0;
  for (const double value : map.values)
    if (value > largest) largest = value;
  const double left = label_room(longest) + 20;
  const double width = left + cell_width * static_cast<double>(map.columns.size()) + 20;
  const double bottom = top + cell_height * static_cast<double>(map.rows.size());
  Svg svg(std::max(width, 480.0), bottom + 60);
  write_titles(svg, map.title, map.subtitle);
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    const double y = top + cell_height * static_cast<double>(row);
    svg.text(left - 8, y + cell_height / 2 + 4, map.rows[row], {.anchor = Anchor::end});
    for (std::size_t column = 0; column < map.columns.size(); ++column) {
      const double value = map.values[row * map.columns.size() + column];
      const double share = largest > 0 ? value / largest : 0;
      const double x = left + cell_width * static_cast<double>(column);
      svg.rectangle(x, y, cell_width - 2, cell_height - 2, heat_colour(share));
      const std::string text = std::isnan(value) ? "–" : fmt::format("{:.{}f}", value, map.digits);
      svg.text(x + cell_width / 2 - 1, y + cell_height / 2 + 4, text,
               {.anchor = Anchor::middle, .colour = heat_is_dark(share) ? "#ffffff" : "#222222"});
    }
  }
  if (map.marked) {
    const auto column = static_cast<double>(*map.marked % map.columns.size());
    const auto row = static_cast<double>(*map.marked / map.columns.size());
    svg.frame(left + cell_width * column - 1, top + cell_height * row - 1, cell_width, cell_height,
              "#d1495b");
  }
  for (std::size_t column = 0; column < map.columns.size(); ++column)
    svg.text(left + cell_width * (static_cast<double>(column) + 0.5), bottom + 18,
             map.columns[column], {.anchor = Anchor::middle});
  svg.text(left + cell_width * static_cast<double>(map.columns.size()) / 2, bottom + 42,
           map.x_title, {.anchor = Anchor::middle, .colour = "#666666"});
  svg.text(20, (top + bottom) / 2, map.y_title,
           {.anchor = Anchor::middle, .colour = "#666666", .upwards = true});
  return svg.finish();
}

std::string line_plot_svg(const LinePlot& plot) {
  constexpr double width = 760, left = 80, right = 560, bottom = 380;
  const Extent extent = extent_of(plot.series);
  Axis x = make_axis(extent.x_low, extent.x_high, left, right);
  if (plot.x_values.size() > 1) {
    x.ticks = plot.x_values;
    x.scale = {x.ticks.front(), x.ticks.back(), left, right};
  }
  const Axis y = make_axis(extent.y_low, extent.y_high, bottom, top);
  Svg svg(width, bottom + 60);
  write_titles(svg, plot.title, plot.subtitle);
  draw_axes(svg, x, y);
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const Series& series = plot.series[i];
    const std::string_view colour = series_colour(series.like.value_or(i));
    std::vector<std::pair<double, double>> pixels;
    for (const auto& [at, value] : series.points) pixels.push_back({x.scale(at), y.scale(value)});
    svg.path(pixels, colour, series.dashed);
    if (!series.dashed)
      for (const auto& [px, py] : pixels) svg.dot(px, py, colour);
    const double entry = top + 20 * static_cast<double>(i);
    svg.path({{right + 16, entry}, {right + 40, entry}}, colour, series.dashed);
    svg.text(right + 46, entry + 4, series.name, {});
  }
  svg.text((left + right) / 2, bottom + 44, plot.x_title,
           {.anchor = Anchor::middle, .colour = "#666666"});
  svg.text(24, (top + bottom) / 2, plot.y_title,
           {.anchor = Anchor::middle, .colour = "#666666", .upwards = true});
  return svg.finish();
}

std::string bar_plot_svg(const BarPlot& plot) {
  constexpr double bar_height = 30, drawing = 420;
  MILLRACE_CHECK(!plot.bars.empty());
  std::size_t longest = 0;
  double largest = 0;
  for (const Bar& bar : plot.bars) {
    longest = std::max(longest, bar.name.size());
    largest = std::max({largest, bar.value, bar.limit.value_or(0)});
  }
  const double left = label_room(longest);
  const double bottom = top + bar_height * static_cast<double>(plot.bars.size());
  const Axis axis = make_axis(0, largest, left, left + drawing);
  Svg svg(left + drawing + 90, bottom + 60);
  write_titles(svg, plot.title, plot.subtitle);
  for (const double tick : axis.ticks) {
    svg.line(axis.scale(tick), top, axis.scale(tick), bottom, grid_colour);
    svg.text(axis.scale(tick), bottom + 18, axis.text(tick), {.anchor = Anchor::middle});
  }
  for (std::size_t i = 0; i < plot.bars.size(); ++i) {
    const Bar& bar = plot.bars[i];
    const double y = top + bar_height * static_cast<double>(i);
    const double end = axis.scale(bar.value);
    svg.text(left - 8, y + bar_height / 2 + 4, bar.name, {.anchor = Anchor::end});
    svg.rectangle(left, y + 4, end - left, bar_height - 8, series_colour(0));
    double label = end;
    if (bar.limit) {
      const double at = axis.scale(*bar.limit);
      svg.line(at, y + 1, at, y + bar_height - 1, series_colour(1), 2);
      label = std::max(label, at);
    }
    svg.text(label + 6, y + bar_height / 2 + 4, fmt::format("{:.{}f}", bar.value, plot.digits), {});
  }
  svg.text(left + drawing / 2, bottom + 42, plot.value_title,
           {.anchor = Anchor::middle, .colour = "#666666"});
  return svg.finish();
}

}  // namespace millrace::plot
