#include "report/page/roofline_chart.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "report/ops/words.h"
#include "text/number.h"

namespace headroom::report {
namespace {

using text::formatted;

// Of the drawing, in its own units; the page scales it.
constexpr double kWidth = 720, kHeight = 340;
constexpr double kLeft = 70, kRight = 20, kTop = 30, kBottom = 46;

std::string number(double value) { return formatted("%.1f", value); }

struct LogAxis {
  double least = 1;
  double most = 10;
  double from = 0;
  double to = 1;

  [[nodiscard]] double at(double value) const {
    const double part = std::log(value / least) / std::log(most / least);
    return from + std::clamp(part, 0.0, 1.0) * (to - from);
  }
};

bool is_drawn(const ops::RooflineRow& row) {
  return row.flops > 0 && row.bytes > 0 && row.flops_per_second > 0;
}

std::string flops_words(double flops) {
  if (flops >= 1e12) return formatted("%.4g", flops / 1e12) + " TFLOP/s";
  return formatted("%.4g", flops / 1e9) + " GFLOP/s";
}

// 10M, 1G, 100T.
std::string tick_words(double value) {
  constexpr std::string_view kUnits = "kMGTPE";
  size_t unit = 0;
  for (value /= 1e3; value >= 999.5 && unit + 1 < kUnits.size(); value /= 1e3) ++unit;
  return formatted("%.3g", value) + kUnits[unit];
}

class Chart {
 public:
  explicit Chart(const ops::OperatorRoofline& roofline) : roofline_(roofline) {
    for (const ops::RooflineRow& row : roofline.rows) {
      if (is_drawn(row)) points_.push_back(&row);
    }
    std::stable_sort(points_.begin(), points_.end(),
                     [](const auto* a, const auto* b) { return a->kernel_ms > b->kernel_ms; });
    if (points_.size() > kRooflinePoints) points_.resize(kRooflinePoints);
    find_roofs();
    find_axes();
  }

  Html draw() {
    if (points_.empty() || roofs_.empty()) return {};
    html_.raw("<div class=\"curves\"><svg viewBox=\"0 0 720 340\" role=\"img\" aria-label=\"");
    html_.text("Achieved FLOP/s of operators over FLOPs a byte, under the limits of " +
               roofline_.device);
    html_.raw("\">");
    draw_grid();
    draw_roofs();
    // The largest first, so that the small ones lie on top.
    for (const ops::RooflineRow* row : points_) draw_point(*row);
    html_.raw("</svg></div>\n");
    return html_;
  }

 private:
  // The peaks of the types that are there.
  void find_roofs() {
    std::set<std::string> used;
    for (const ops::RooflineRow* row : points_) used.insert(row->rate);
    for (const auto& [rate, flops] : roofline_.flops_per_second) {
      if (used.contains(rate) && flops > 0) roofs_.emplace_back(rate, flops);
    }
    if (roofs_.empty() && !roofline_.flops_per_second.empty()) {
      roofs_.push_back(roofline_.flops_per_second.front());
    }
  }

  void find_axes() {
    double left = INFINITY, right = 0, low = INFINITY, high = 0;
    for (const ops::RooflineRow* row : points_) {
      left = std::min(left, row->flops / row->bytes);
      right = std::max(right, row->flops / row->bytes);
      low = std::min(low, row->flops_per_second);
      high = std::max(high, row->flops_per_second);
    }
    for (const auto& [rate, flops] : roofs_) {
      right = std::max(right, 2 * flops / roofline_.bytes_per_second);
      high = std::max(high, flops);
    }
    const auto down = [](double value) { return std::pow(10, std::floor(std::log10(value))); };
    const auto up = [](double value) { return std::pow(10, std::ceil(std::log10(value))); };
    x_ = {down(left), up(right), kLeft, kWidth - kRight};
    // What is a millionth of the peak is drawn at the bottom.
    constexpr double kDeepest = 1e-6;
    y_ = {down(std::max(low, kDeepest * high)), up(high * 1.05), kHeight - kBottom, kTop};
  }

  void line(double x1, double y1, double x2, double y2, Literal kind) {
    html_.raw("<line class=\"").raw(kind).raw("\" x1=\"").text(number(x1));
    html_.raw("\" y1=\"").text(number(y1)).raw("\" x2=\"").text(number(x2));
    html_.raw("\" y2=\"").text(number(y2)).raw("\"/>");
  }
  void label(double x, double y, const std::string& words, Literal anchor, Literal kind = "") {
    html_.raw("<text class=\"").raw(kind).raw("\" x=\"").text(number(x));
    html_.raw("\" y=\"").text(number(y)).raw("\" text-anchor=\"").raw(anchor).raw("\">");
    html_.text(words).raw("</text>");
  }

  void draw_grid() {
    for (double value = x_.least; value <= x_.most * 1.001; value *= 10) {
      line(x_.at(value), kTop, x_.at(value), kHeight - kBottom, "axis");
      label(x_.at(value), kHeight - kBottom + 18, formatted("%.4g", value), "middle");
    }
    for (double value = y_.least; value <= y_.most * 1.001; value *= 10) {
      line(kLeft, y_.at(value), kWidth - kRight, y_.at(value), "axis");
      label(kLeft - 6, y_.at(value) + 4, tick_words(value), "end");
    }
    label((kLeft + kWidth - kRight) / 2, kHeight - 6, "FLOPs a byte", "middle", "name");
    label(kLeft - 6, 14, "FLOP/s", "end", "name");
  }

  void draw_roofs() {
    const double bandwidth = roofline_.bytes_per_second;
    double highest = 0;
    for (const auto& [rate, flops] : roofs_) highest = std::max(highest, flops);
    const double begin = std::max(x_.least, y_.least / bandwidth);
    const double ridge = std::min(highest / bandwidth, x_.most);
    if (begin < ridge) {
      line(x_.at(begin), y_.at(begin * bandwidth), x_.at(ridge), y_.at(ridge * bandwidth),
           "limitline");
    }
    for (const auto& [rate, flops] : roofs_) {
      const double from = std::clamp(flops / bandwidth, x_.least, x_.most);
      line(x_.at(from), y_.at(flops), kWidth - kRight, y_.at(flops), "limitline");
      label(kWidth - kRight, y_.at(flops) - 5, rate + " " + flops_words(flops), "end", "limittext");
    }
  }

  void draw_point(const ops::RooflineRow& row) {
    constexpr double kLeastRadius = 2.5, kMostRadius = 16;
    const double part = std::sqrt(row.kernel_ms / points_.front()->kernel_ms);
    html_.raw("<circle class=\"dot\" cx=\"").text(number(x_.at(row.flops / row.bytes)));
    html_.raw("\" cy=\"").text(number(y_.at(row.flops_per_second)));
    html_.raw("\" r=\"").text(number(std::max(kLeastRadius, kMostRadius * part)));
    html_.raw("\" style=\"fill:var(--").text(group_colour(row.group)).raw(")\"><title>");
    html_.text(row.name + " " + row.shapes + ": " + flops_words(row.flops_per_second) + ", " +
               formatted("%.3g", row.bytes_per_second / 1e12) + " TB/s, " +
               milliseconds(row.kernel_ms) + " a step, of which " + milliseconds(row.above_ms) +
               " above its floor");
    html_.raw("</title></circle>");
  }

  const ops::OperatorRoofline& roofline_;
  std::vector<const ops::RooflineRow*> points_;
  std::vector<std::pair<std::string, double>> roofs_;
  LogAxis x_, y_;
  Html html_;
};

}  // namespace

Html roofline_chart(const ops::OperatorRoofline& roofline) { return Chart(roofline).draw(); }

}  // namespace headroom::report
