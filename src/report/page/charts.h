// The charts that every page shares. Each is plain markup with its figures in it; pointing at the
// step chart is the work of assets/charts.js.
//
// Pure functions; the size of the markup is linear in the parts, and a step chart's is bounded by
// kStepChartPoints whatever the timeline.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "report/page/html.h"

namespace headroom::report {

// One part of a stack. `key` names its colour in page.css.
struct Part {
  std::string key;
  std::string label;
  Bytes bytes;
};

// A line that bars are held against.
struct Limit {
  std::string label;  // "a100-sxm-80gb offers"
  Bytes bytes;
};

// One bar of parts, its scale and the limit; parts of nothing are left out.
[[nodiscard]] Html stacked_bar(const std::vector<Part>& parts, const Limit& limit);

// The names of the colours of `parts`.
[[nodiscard]] Html legend(const std::vector<Part>& parts);

// A bar against the limit, with its interval and words at both ends.
struct LimitBar {
  std::string name;
  std::string note;  // below the name
  std::string tone;  // "yes", "at_risk" or "no": its colour
  Bytes low;
  Bytes expected;
  Bytes high;
  std::string figure;  // at the right
  std::string figure_note;
  bool asked = false;       // the case that the others are compared with
  std::vector<Part> parts;  // what `expected` is made of; none: not shown
};
[[nodiscard]] Html limit_bars(const std::vector<LimitBar>& bars, const Limit& limit);

// Memory over the step: what the stack is made of at each point, from the ground up.
struct StepSeries {
  std::string key;
  std::string label;
  std::vector<Bytes> bytes;  // one a point
};
struct StepChart {
  std::string description;  // for those who cannot see it
  std::vector<std::string> labels;
  std::vector<int64_t> event;  // in increasing order
  std::vector<int64_t> phase;  // indices into labels, one a point; also the next two
  std::vector<int64_t> module;
  std::vector<int64_t> op;
  std::vector<Bytes> allocated;
  std::vector<StepSeries> series;
  size_t peak = 0;
  Limit limit;
};
[[nodiscard]] Html step_chart(const StepChart& chart);

inline constexpr size_t kStepChartPoints = 1200;

// Which of `values` to draw when there are more than `most`: from each run of neighbours the
// highest and the lowest, and always the first, the last and `keep`. In increasing order.
[[nodiscard]] std::vector<size_t> thin_out(const std::vector<Bytes>& values, size_t keep,
                                           size_t most);

}  // namespace headroom::report
