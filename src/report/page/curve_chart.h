// A chart of curves: lines with intervals and points over an axis of batches or intensities.
//
// Plain SVG with its figures in it, readable without script; pointing at a point shows its words.
// Pure; the markup is linear in the points, of which a curve takes kCurvePoints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/page/html.h"

namespace headroom::report {

struct CurvePoint {
  double x = 0;
  double y = 0;
  double low = 0;  // of the interval; low == high where there is none
  double high = 0;
  bool measured = false;  // a full point; else a hollow one
  std::string words;      // what pointing at it says
};

struct Curve {
  std::string key;  // of its colour in page.css
  std::string label;
  std::vector<CurvePoint> points;  // by x
};

struct CurveMark {
  double at = 0;
  std::string label;
};

struct CurveChart {
  std::string description;  // for those who cannot see it
  std::string x_label;
  std::string y_label;
  std::vector<Curve> curves;  // x is positive: its axis is logarithmic
  bool logarithmic_y = false;
  std::optional<CurveMark> upright;  // a line at an x
  std::optional<CurveMark> level;    // a line at a y
};

inline constexpr size_t kCurvePoints = 2000;

// Points that are not finite, or not positive on a logarithmic axis, are left out; nothing is drawn
// where none is left.
[[nodiscard]] Html curve_chart(const CurveChart& chart);

}  // namespace headroom::report
