// The section of a page with memory over the step: of the one setting that an answer is about, or
// of the first of those that it lists.
//
// Pure, thread-safe. The size is bounded by kStepChartPoints, whatever the length of the timeline.
#pragma once

#include "fit/answer.h"
#include "report/page/charts.h"
#include "report/page/html.h"

namespace headroom::report {

// "a100-sxm-80gb offers"
[[nodiscard]] Limit device_limit(const fit::DeviceMemory& device);

struct StepView {
  const fit::Timeline& timeline;
  const fit::PeakPlace& peak_at;
  const fit::ComponentBytes& breakdown;  // at the peak
  const fit::DeviceMemory& device;
};
// REQUIRES: the timeline has points.
[[nodiscard]] Section step_section(const StepView& view);

}  // namespace headroom::report
