// Plots as text: what must be in the picture, and that labels cannot break out of it.
#include "runtime/plot/plot.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "runtime/plot/svg.h"

using namespace millrace::plot;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Every tag that opens also closes, and nothing stands outside the one document.
void check_well_formed(const std::string& svg) {
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count(svg, "<text ") == count(svg, "</text>"));
  CHECK(count(svg, "<svg ") == 1);
  CHECK(count(svg, "nan") == 0);
  CHECK(count(svg, "inf") == 0);
}

HeatMap small_map() {
  HeatMap map;
  map.title = "reads";
  map.x_title = "depth";
  map.y_title = "piece";
  map.columns = {"1", "2"};
  map.rows = {"64 KiB", "1 MiB", "8 MiB"};
  map.values = {0.5, 1.0, 1.5, 2.0, std::nan(""), 0.0};
  map.marked = 3;
  return map;
}

}  // namespace

TEST_CASE("A heat map shows each value, a gap for what is not known, and frames the marked cell") {
  const std::string svg = heat_map_svg(small_map());
  check_well_formed(svg);
  for (const char* value : {">0.50<", ">1.00<", ">1.50<", ">2.00<", ">0.00<", ">–<", ">8 MiB<"})
    CHECK(count(svg, value) == 1);
  CHECK(count(svg, "stroke-width=\"2\"/>") == 1);
  CHECK(count(svg, heat_colour(1.0)) == 1);
  CHECK(count(svg, heat_colour(std::nan(""))) == 1);
}

TEST_CASE("Labels of a plot cannot add markup to it") {
  HeatMap map = small_map();
  map.title = "<script>alert(\"x\")</script> & \x1b[2J \xff";
  const std::string svg = heat_map_svg(map);
  check_well_formed(svg);
  CHECK(count(svg, "<script") == 0);
  CHECK(count(svg, "\x1b") == 0);
  CHECK(count(svg, "&lt;script&gt;") == 1);
  CHECK(count(svg, "\xef\xbf\xbd") == 1);
}

TEST_CASE("A line plot has a line and a name per series, higher values higher up") {
  LinePlot plot;
  plot.title = "tokens/s";
  plot.series = {{"measured", {{1, 2}, {2, 4}}, false}, {"floor", {{1, 5}, {2, 5}}, true}};
  const std::string svg = line_plot_svg(plot);
  check_well_formed(svg);
  CHECK(count(svg, ">measured<") == 1);
  CHECK(count(svg, "<circle ") == 2);
  CHECK(count(svg, "stroke-dasharray") == 2);  // the line and its entry in the legend
  LinePlot flat = plot;
  flat.series = {{"one point", {{3, 0}}, false}};
  check_well_formed(line_plot_svg(flat));
}

TEST_CASE("A bar plot has a bar, a value and a limit per entry") {
  BarPlot plot;
  plot.title = "readers";
  plot.bars = {{"uring", 2.31, 2.5}, {"mmap", 0.4, {}}, {"refused", 0, {}}};
  const std::string svg = bar_plot_svg(plot);
  check_well_formed(svg);
  for (const char* text : {">2.31<", ">0.40<", ">0.00<", ">uring<", ">mmap<"})
    CHECK(count(svg, text) == 1);
  plot.bars = {{"nothing", 0, {}}};
  check_well_formed(bar_plot_svg(plot));
}

TEST_CASE("Ticks are round, cover the values and are at least two") {
  struct Range {
    double low, high;
  };
  const auto range = GENERATE(Range{0, 1}, Range{0, 2.37}, Range{-3, 8}, Range{0, 1e9},
                              Range{0.001, 0.0017}, Range{0, 7e-9});
  const auto ticks = round_ticks(range.low, range.high, 6);
  REQUIRE(ticks.size() >= 2);
  CHECK(ticks.size() <= 14);
  CHECK(ticks.front() <= range.low);
  CHECK(ticks.back() >= range.high * (1 - 1e-9));
  CHECK(tick_text(1500, 500) == "1500");
  CHECK(tick_text(0.05, 0.05) == "0.05");
}
