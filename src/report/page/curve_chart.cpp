#include "report/page/curve_chart.h"

#include <algorithm>
#include <cmath>

#include "text/number.h"

namespace headroom::report {
namespace {

using text::formatted;

// Of the drawing, in its own units; the page scales it.
constexpr double kWidth = 720, kHeight = 300;
constexpr double kLeft = 64, kRight = 16, kTop = 18, kBottom = 44;

std::string number(double value) { return formatted("%.1f", value); }

// Short words for an axis: 512, 1.5k, 20M.
std::string tick_words(double value) {
  if (std::abs(value) >= 1e6) return formatted("%.3g", value / 1e6) + "M";
  if (std::abs(value) >= 1e4) return formatted("%.3g", value / 1e3) + "k";
  return formatted("%.4g", value);
}

bool is_drawn(const CurvePoint& point, bool logarithmic_y) {
  return std::isfinite(point.x) && point.x > 0 && std::isfinite(point.y) &&
         std::isfinite(point.low) && std::isfinite(point.high) && point.low <= point.high &&
         (!logarithmic_y || point.low > 0);
}

struct Axis {
  double least = 0;
  double most = 1;
  bool logarithmic = false;
  double from = 0;  // where least and most are drawn
  double to = 1;

  [[nodiscard]] double at(double value) const {
    const double part = logarithmic ? std::log(value / least) / std::log(most / least)
                                    : (value - least) / (most - least);
    return from + std::clamp(part, 0.0, 1.0) * (to - from);
  }

  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> values;
    if (logarithmic) {
      const double base = most / least > 4096 ? 10 : most / least > 256 ? 4 : 2;
      const double first = std::ceil(std::log(least) / std::log(base) - 1e-9);
      for (double power = first; values.size() < 16; ++power) {
        const double value = std::pow(base, power);
        if (value > most * 1.0001) break;
        values.push_back(value);
      }
      return values;
    }
    const double raw = (most - least) / 5;
    const double power = std::pow(10, std::floor(std::log10(raw)));
    double step = power;
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      step = factor * power;
      if (step >= raw) break;
    }
    for (double value = std::ceil(least / step) * step; value <= most * 1.0001; value += step) {
      values.push_back(value);
    }
    return values;
  }
};

struct Frame {
  Axis x;
  Axis y;
};

// What all that is drawn needs; nothing where nothing is.
std::optional<Frame> frame_of(const CurveChart& chart) {
  double left = INFINITY, right = 0, low = INFINITY, high = 0;
  for (const Curve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      if (!is_drawn(point, chart.logarithmic_y)) continue;
      left = std::min(left, point.x);
      right = std::max(right, point.x);
      low = std::min({low, point.low, point.y});
      high = std::max({high, point.high, point.y});
    }
  }
  if (!(right > 0) || !(high > 0)) return std::nullopt;
  if (chart.level && chart.level->at < 2 * high) high = std::max(high, chart.level->at);
  if (!(right > left)) right = 2 * left;
  const Axis x{left, right, true, kLeft, kWidth - kRight};
  const double floor = chart.logarithmic_y ? low / 1.1 : 0;
  return Frame{x, Axis{floor, high * 1.06, chart.logarithmic_y, kHeight - kBottom, kTop}};
}

void line(Html& html, Literal kind, double x1, double y1, double x2, double y2) {
  html.raw("<line class=\"").raw(kind).raw("\" x1=\"").text(number(x1)).raw("\" y1=\"");
  html.text(number(y1)).raw("\" x2=\"").text(number(x2)).raw("\" y2=\"").text(number(y2));
  html.raw("\"/>");
}

void words_at(Html& html, Literal kind, double x, double y, Literal anchor,
              const std::string& words) {
  html.raw("<text class=\"").raw(kind).raw("\" x=\"").text(number(x)).raw("\" y=\"");
  html.text(number(y)).raw("\" text-anchor=\"").raw(anchor).raw("\">").text(words).raw("</text>");
}

void axes(Html& html, const CurveChart& chart, const Frame& frame) {
  for (const double value : frame.y.ticks()) {
    const double y = frame.y.at(value);
    line(html, "axis", kLeft, y, kWidth - kRight, y);
    words_at(html, "tick", kLeft - 8, y + 4, "end", tick_words(value));
  }
  for (const double value : frame.x.ticks()) {
    const double x = frame.x.at(value);
    line(html, "axis", x, kHeight - kBottom, x, kHeight - kBottom + 5);
    words_at(html, "tick", x, kHeight - kBottom + 18, "middle", tick_words(value));
  }
  words_at(html, "name", (kLeft + kWidth - kRight) / 2, kHeight - 6, "middle", chart.x_label);
  words_at(html, "name", 4, kTop - 5, "start", chart.y_label);
}

void band(Html& html, const Curve& curve, const std::vector<const CurvePoint*>& points,
          const Frame& frame) {
  const bool has_width =
      std::any_of(points.begin(), points.end(), [](const auto* p) { return p->high > p->low; });
  if (!has_width) return;
  html.raw("<polygon class=\"band\" style=\"fill:var(--").text(curve.key).raw(")\" points=\"");
  for (const CurvePoint* p : points) {
    html.text(number(frame.x.at(p->x)) + "," + number(frame.y.at(p->high)) + " ");
  }
  for (auto p = points.rbegin(); p != points.rend(); ++p) {
    html.text(number(frame.x.at((*p)->x)) + "," + number(frame.y.at((*p)->low)) + " ");
  }
  html.raw("\"/>");
}

void draw(Html& html, const Curve& curve, const CurveChart& chart, const Frame& frame) {
  std::vector<const CurvePoint*> points;
  for (const CurvePoint& point : curve.points) {
    if (is_drawn(point, chart.logarithmic_y) && points.size() < kCurvePoints) {
      points.push_back(&point);
    }
  }
  band(html, curve, points, frame);
  html.raw("<polyline class=\"curve\" style=\"stroke:var(--").text(curve.key);
  html.raw(")\" points=\"");
  for (const CurvePoint* p : points) {
    html.text(number(frame.x.at(p->x)) + "," + number(frame.y.at(p->y)) + " ");
  }
  html.raw("\"/>");
  for (const CurvePoint* p : points) {
    html.raw("<circle class=\"point\" r=\"4\" style=\"stroke:var(--")
        .text(curve.key)
        .raw(");fill:");
    if (p->measured) {
      html.raw("var(--").text(curve.key).raw(")");
    } else {
      html.raw("var(--surface)");
    }
    html.raw("\" cx=\"").text(number(frame.x.at(p->x))).raw("\" cy=\"");
    html.text(number(frame.y.at(p->y))).raw("\"><title>").text(p->words);
    html.raw("</title></circle>");
  }
}

void marks(Html& html, const CurveChart& chart, const Frame& frame) {
  if (chart.upright && chart.upright->at >= frame.x.least && chart.upright->at <= frame.x.most) {
    const double x = frame.x.at(chart.upright->at);
    line(html, "mark", x, kTop, x, kHeight - kBottom);
    const bool is_right = x > (kLeft + kWidth) / 2;
    words_at(html, "marktext", is_right ? x - 6 : x + 6, kTop + 12,
             is_right ? Literal("end") : Literal("start"), chart.upright->label);
  }
  if (chart.level && chart.level->at <= frame.y.most && chart.level->at > frame.y.least) {
    const double y = frame.y.at(chart.level->at);
    line(html, "limitline", kLeft, y, kWidth - kRight, y);
    words_at(html, "limittext", kLeft + 6, y - 5, "start", chart.level->label);
  }
}

}  // namespace

Html curve_chart(const CurveChart& chart) {
  Html html;
  const std::optional<Frame> frame = frame_of(chart);
  if (!frame) return html;
  html.raw("<figure class=\"curves\"><svg viewBox=\"0 0 720 300\" role=\"img\" aria-label=\"");
  html.text(chart.description).raw("\">");
  axes(html, chart, *frame);
  for (const Curve& curve : chart.curves) draw(html, curve, chart, *frame);
  marks(html, chart, *frame);
  html.raw("</svg>");
  if (chart.curves.size() > 1) {
    html.raw("<ul class=\"legend\">");
    for (const Curve& curve : chart.curves) {
      html.raw("<li><span class=\"swatch\" style=\"background-color:var(--").text(curve.key);
      html.raw(")\"></span>").text(curve.label).raw("</li>");
    }
    html.raw("</ul>");
  }
  return html.raw("</figure>\n");
}

}  // namespace headroom::report
