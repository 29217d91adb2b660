// An SVG picture as it grows: shapes and text with our one style, coordinates in pixels from the
// top left. Text is escaped here, so that names from files cannot break out. One thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::plot {

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 12;
  Anchor anchor = Anchor::start;
  std::string_view colour = "#222222";
  bool bold = false;
  bool upwards = false;  // turned by 90 degrees, reading from below
};

class Svg {
 public:
  Svg(double width, double height);
  void rectangle(double x, double y, double width, double height, std::string_view fill);
  // A frame without filling.
  void frame(double x, double y, double width, double height, std::string_view colour);
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width = 1);
  void path(const std::vector<std::pair<double, double>>& points, std::string_view colour,
            bool dashed);
  void dot(double x, double y, std::string_view colour);
  void text(double x, double y, std::string_view text, const TextStyle& style);
  // The whole document. Nothing may be added afterwards.
  std::string finish();

 private:
  std::string out_;
};

// Colours of series that stay apart in print and for most colour-blind readers; repeats after 8.
std::string_view series_colour(std::size_t index);
// Dark blue (0) over green to yellow (1); `share` is clamped, a NaN is grey.
std::string heat_colour(double share);
// True where text on heat_colour(share) has to be white.
bool heat_is_dark(double share);

// Round steps (1, 2, 5 times a power of ten) from at or below `low` to at or above `high`: about
// `count` of them, at least two. low < high, both finite.
std::vector<double> round_ticks(double low, double high, int count);
// "0.25", "1500": as many digits as ticks of this distance need.
std::string tick_text(double value, double step);

}  // namespace millrace::plot
