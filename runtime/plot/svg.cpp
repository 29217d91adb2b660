#include "runtime/plot/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "runtime/base/utf8.h"

namespace millrace::plot {

namespace {

// What may stand in XML text: no markup, no control characters, valid UTF-8.
std::string escaped(std::string_view text) {
  std::string made;
  for (const char c : text) {
    switch (c) {
      case '&':
        made += "&amp;";
        break;
      case '<':
        made += "&lt;";
        break;
      case '>':
        made += "&gt;";
        break;
      case '"':
        made += "&quot;";
        break;
      default:
        made += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return utf8_replace_invalid(made);
}

const char* anchor_name(Anchor anchor) {
  return anchor == Anchor::start ? "start" : anchor == Anchor::middle ? "middle" : "end";
}

struct Rgb {
  double red, green, blue;
};
constexpr std::array<Rgb, 5> heat = {
    {{38, 30, 92}, {38, 92, 140}, {32, 150, 130}, {120, 200, 80}, {250, 230, 60}}};

}  // namespace

Svg::Svg(double width, double height) {
  out_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\">\n",
      width, height);
  rectangle(0, 0, width, height, "#ffffff");
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view fill) {
  out_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y,
      width, height, fill);
}

void Svg::frame(double x, double y, double width, double height, std::string_view colour) {
  out_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
      "stroke=\"{}\" stroke-width=\"2\"/>\n",
      x, y, width, height, colour);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view colour, double width) {
  out_ += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
      "stroke-width=\"{:.1f}\"/>\n",
      x1, y1, x2, y2, colour, width);
}

void Svg::path(const std::vector<std::pair<double, double>>& points, std::string_view colour,
               bool dashed) {
  if (points.empty()) return;
  std::string list;
  for (const auto& [x, y] : points) list += fmt::format("{:.1f},{:.1f} ", x, y);
  list.pop_back();
  out_ +=
      fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                  list, colour, dashed ? " stroke-dasharray=\"6 4\"" : "");
}

void Svg::dot(double x, double y, std::string_view colour) {
  out_ +=
      fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x, y, colour);
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style) {
  const std::string turned =
      style.upwards ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y) : "";
  out_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.0f}\" text-anchor=\"{}\" fill=\"{}\"{}{}>"
      "{}</text>\n",
      x, y, style.size, anchor_name(style.anchor), style.colour,
      style.bold ? " font-weight=\"bold\"" : "", turned, escaped(text));
}

std::string Svg::finish() { return std::move(out_ += "</svg>\n"); }

std::string_view series_colour(std::size_t index) {
  static constexpr std::array<std::string_view, 8> colours = {
      "#0b62a4", "#d1495b", "#2e8b57", "#edae49", "#6a4c93", "#00a6a6", "#8c564b", "#7f7f7f"};
  return colours[index % colours.size()];
}

std::string heat_colour(double share) {
  if (std::isnan(share)) return "#dddddd";
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(heat.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(place), heat.size() - 2);
  const double part = place - static_cast<double>(below);
  const auto mixed = [&](double Rgb::*channel) {
    return static_cast<int>(
        std::lround(heat[below].*channel * (1 - part) + heat[below + 1].*channel * part));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(&Rgb::red), mixed(&Rgb::green),
                     mixed(&Rgb::blue));
}

bool heat_is_dark(double share) { return share < 0.6; }

std::vector<double> round_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = power * factor;
    if (step >= rough * 0.999) break;
  }
  const double first = std::floor(low / step + 1e-9);
  const double last = std::max(std::ceil(high / step - 1e-9), first + 1);
  std::vector<double> ticks;
  for (double tick = first; tick <= last; tick += 1) ticks.push_back(tick * step);
  return ticks;
}

std::string tick_text(double value, double step) {
  const int digits = std::clamp(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0, 9);
  return fmt::format("{:.{}f}", value == 0 ? 0.0 : value, digits);
}

}  // namespace millrace::plot
