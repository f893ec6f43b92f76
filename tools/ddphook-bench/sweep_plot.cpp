//===- sweep_plot.cpp - a sweep as a drawing ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes SVG, which any browser shows, so that a plot needs no other program.
// One line per hook and type; sizes on a logarithmic axis.
//
//===----------------------------------------------------------------------===//
#include "sweep_result.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <sstream>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

struct Point {
  double x, y;
};

struct Line {
  std::string name;
  std::vector<Point> points;
};

/// Maps values to coordinates of the drawing.
struct Axis {
  double low, high, begin, end;
  bool isLogarithmic;

  double at(double value) const {
    const double from = isLogarithmic ? std::log(low) : low;
    const double to = isLogarithmic ? std::log(high) : high;
    const double here = isLogarithmic ? std::log(value) : value;
    return begin +
           (to > from ? (here - from) / (to - from) : 0.5) * (end - begin);
  }
};

constexpr double kWidth = 480, kHeight = 360;
constexpr double kLeft = 64, kRight = 28, kTop = 40, kBottom = 48;
constexpr double kLegendLine = 18;

/// Distinct for color-blind readers (Okabe and Ito).
constexpr const char *kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#000000"};

const char *colour(size_t line) { return kColours[line % std::size(kColours)]; }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.7g", value);
  return text;
}

std::string sizeText(double bytes) {
  constexpr const char *units[] = {"", " KiB", " MiB", " GiB", " TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit)
    bytes /= 1024;
  return number(bytes) + units[unit];
}

void writeText(std::ostream &svg, double x, double y, const char *anchor,
               const std::string &text) {
  svg << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor
      << "\">" << text << "</text>\n";
}

/// Returns round numbers within the bounds of an axis: powers of `base` on a
/// logarithmic axis, few enough to be legible.
std::vector<double> ticks(const Axis &axis, double base) {
  std::vector<double> result;
  if (axis.isLogarithmic) {
    const double exponents = std::log(axis.high / axis.low) / std::log(base);
    const double step = std::pow(base, std::max(1.0, std::ceil(exponents / 7)));
    double tick =
        std::pow(base, std::ceil(std::log(axis.low) / std::log(base) - 1e-9));
    for (; tick <= axis.high * (1 + 1e-9); tick *= step)
      result.push_back(tick);
    return result;
  }
  const double rough = std::max(axis.high, 1e-12) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double candidate : {5 * power, 2 * power, power})
    if (candidate >= rough)
      step = candidate;
  for (double tick = 0; tick <= axis.high * (1 + 1e-9); tick += step)
    result.push_back(tick);
  return result;
}

/// Returns the smallest and the largest coordinate of all lines.
std::pair<double, double> range(const std::vector<Line> &lines,
                                double Point::*coordinate) {
  std::pair<double, double> result = {INFINITY, -INFINITY};
  for (const Line &line : lines)
    for (const Point &point : line.points) {
      result.first = std::min(result.first, point.*coordinate);
      result.second = std::max(result.second, point.*coordinate);
    }
  return result;
}

/// Draws one diagram, with its left edge at `offset`.
void writeDiagram(std::ostream &svg, double offset, const std::string &title,
                  const std::vector<Line> &lines, bool isLogarithmic) {
  const auto [least, most] = range(lines, &Point::x);
  const auto [lowest, highest] = range(lines, &Point::y);
  const double bottom = kHeight - kBottom;
  const Axis x = {least, most, offset + kLeft, offset + kWidth - kRight, true};
  const Axis y = {isLogarithmic ? std::pow(10, std::floor(std::log10(lowest)))
                                : 0,
                  isLogarithmic ? std::pow(10, std::ceil(std::log10(highest)))
                                : std::max(highest, 1e-9) * 1.05,
                  bottom, kTop, isLogarithmic};
  writeText(svg, offset + kLeft, kTop - 16, "start", title);
  svg << "<g stroke=\"#dddddd\">\n";
  for (double tick : ticks(y, 10))
    svg << "<line x1=\"" << x.begin << "\" x2=\"" << x.end << "\" y1=\""
        << y.at(tick) << "\" y2=\"" << y.at(tick) << "\"/>\n";
  svg << "</g>\n";
  for (double tick : ticks(y, 10))
    writeText(svg, x.begin - 6, y.at(tick) + 4, "end", number(tick));
  for (double tick : ticks(x, 2))
    writeText(svg, x.at(tick), bottom + 18, "middle", sizeText(tick));
  writeText(svg, (x.begin + x.end) / 2, bottom + 38, "middle", "buffer");
  for (size_t i = 0; i < lines.size(); ++i) {
    svg << "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" << colour(i)
        << "\" points=\"";
    for (const Point &point : lines[i].points)
      svg << x.at(point.x) << ',' << y.at(point.y) << ' ';
    svg << "\"/>\n";
    for (const Point &point : lines[i].points)
      svg << "<circle r=\"2.5\" fill=\"" << colour(i) << "\" cx=\""
          << x.at(point.x) << "\" cy=\"" << y.at(point.y) << "\"/>\n";
  }
}

/// Returns a line of `value` for each hook and type.
std::vector<Line>
linesOf(const SweepResult &result,
        const std::function<double(const SweepRow &)> &value) {
  std::vector<Line> lines;
  std::map<std::string, size_t> places;
  for (const SweepRow &row : result.rows) {
    const std::string name = row.hook + ", " + dtypeName(row.dtype);
    const auto [place, isNew] = places.emplace(name, lines.size());
    if (isNew)
      lines.push_back({name, {}});
    lines[place->second].points.push_back(
        {static_cast<double>(row.bytes()), value(row)});
  }
  return lines;
}

} // namespace

std::string bench::sweepSvg(const SweepResult &result) {
  const std::vector<Line> times = linesOf(result, [](const SweepRow &row) {
    return std::max(row.inPlace.seconds() * 1e6, 1e-3);
  });
  const std::vector<Line> bandwidths =
      linesOf(result, [&](const SweepRow &row) {
        return result.busBandwidth(row, row.inPlace);
      });
  std::ostringstream svg;
  const double height =
      kHeight + kLegendLine * static_cast<double>(times.size()) + 8;
  svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << 2 * kWidth
      << "\" height=\"" << height << "\" viewBox=\"0 0 " << 2 * kWidth << ' '
      << height << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  if (!times.empty()) {
    const std::string ranks = std::to_string(result.worldSize) + " ranks";
    writeDiagram(svg, 0, "time in place, microseconds, " + ranks, times, true);
    writeDiagram(svg, kWidth, "bus bandwidth in place, GB/s, " + ranks,
                 bandwidths, false);
  }
  for (size_t i = 0; i < times.size(); ++i) {
    const double y = kHeight + kLegendLine * static_cast<double>(i) + 8;
    svg << "<rect x=\"" << kLeft << "\" y=\"" << y - 6
        << "\" width=\"20\" height=\"3\" fill=\"" << colour(i) << "\"/>\n";
    writeText(svg, kLeft + 28, y, "start", times[i].name);
  }
  svg << "</svg>\n";
  return svg.str();
}
