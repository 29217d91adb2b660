// Plots as SVG text: heat maps, lines, bars. Pure functions of plain data; the caller writes the
// text (io/write_file.h). Labels may come from files: they are escaped. A NaN is a gap.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::plot {

struct HeatMap {
  std::string title, subtitle;
  std::string x_title, y_title;
  std::vector<std::string> columns, rows;  // not empty; rows from the top
  std::vector<double> values;         // [row][column], 0 or more; the colours span 0 to the largest
  int digits = 2;                     // behind the point, of the number in each cell
  std::optional<std::size_t> marked;  // index of a framed cell
};
std::string heat_map_svg(const HeatMap& map);

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // finite, ascending x
  bool dashed = false;                            // a limit, drawn without dots
  std::optional<std::size_t> like = {};           // drawn in the colour of that series
};

struct LinePlot {
  std::string title, subtitle;
  std::string x_title, y_title;
  std::vector<Series> series;  // at least one with a point
  std::vector<double> x_values =
      {};  // ascending, marked on the axis; fewer than two: round numbers
};
// The y axis starts at 0 unless a value is negative.
std::string line_plot_svg(const LinePlot& plot);

struct Bar {
  std::string name;
  double value = 0;             // 0 or more
  std::optional<double> limit;  // a line above the bar: what would be possible
};

struct BarPlot {
  std::string title, subtitle;
  std::string value_title;
  std::vector<Bar> bars;  // lying, one below the other; not empty
  int digits = 2;
};
std::string bar_plot_svg(const BarPlot& plot);

}  // namespace millrace::plot
