#include "report/fit/step_section.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "report/fit/words.h"

namespace headroom::report {

namespace {

using fit::Component;

// The columns of the step chart: allocated by component, then what is cached, then the context.
StepChart step_columns(const StepView& view) {
  const fit::Timeline& timeline = view.timeline;
  StepChart chart;
  std::vector<Bytes> allocated;
  allocated.reserve(timeline.points.size());
  for (const fit::TimelinePoint& point : timeline.points) {
    allocated.push_back(point.bytes.allocated());
  }
  const std::vector<size_t> kept = thin_out(allocated, timeline.peak, kStepChartPoints);
  std::map<uint32_t, int64_t> renumbered;
  const auto label = [&](uint32_t index) {
    const auto [entry, fresh] =
        renumbered.emplace(index, static_cast<int64_t>(chart.labels.size()));
    if (fresh) {
      chart.labels.push_back(index < timeline.labels.size() ? timeline.labels[index] : "");
    }
    return entry->second;
  };
  for (size_t i = 0; i < fit::kComponentCount; ++i) {
    const auto component = static_cast<Component>(i);
    StepSeries series{
        std::string(fit::name_of(component)), std::string(fit::label_of(component)), {}};
    for (const size_t at : kept) {
      const fit::TimelinePoint& point = timeline.points[at];
      Bytes bytes = point.bytes.bytes[i];
      if (component == Component::cached_unused) {
        bytes = std::max(Bytes(0), point.reserved - allocated[at]);
      } else if (component == Component::context) {
        bytes = view.breakdown[Component::context];
      }
      series.bytes.push_back(bytes);
    }
    const bool there = std::any_of(series.bytes.begin(), series.bytes.end(),
                                   [](Bytes bytes) { return bytes.count > 0; });
    if (there) chart.series.push_back(std::move(series));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const fit::TimelinePoint& point = timeline.points[kept[i]];
    chart.event.push_back(point.event);
    chart.phase.push_back(label(point.phase));
    chart.module.push_back(label(point.module));
    chart.op.push_back(label(point.op));
    chart.allocated.push_back(allocated[kept[i]]);
    if (kept[i] == timeline.peak) chart.peak = i;
  }
  return chart;
}

}  // namespace

Limit device_limit(const fit::DeviceMemory& device) {
  return {device.name + " offers", device.offered};
}

Section step_section(const StepView& view) {
  StepChart chart = step_columns(view);
  chart.limit = device_limit(view.device);
  chart.limit.label += " " + format_bytes(view.device.offered);
  chart.description = "Memory over one training step, stacked by what it is. The peak, " +
                      format_bytes(view.breakdown.allocated()) + " allocated, is in " +
                      place_words(view.peak_at) + ".";
  std::vector<Part> parts;
  parts.reserve(chart.series.size());
  for (const StepSeries& series : chart.series) parts.push_back({series.key, series.label, {}});
  Html html;
  html.raw(
      "<p class=\"lead\">One training step, allocation by allocation. Point at it, or use the ");
  html.raw("arrow keys, to read what is alive and which operator runs; P goes to the peak.</p>\n");
  html.add(step_chart(chart)).add(legend(parts));
  return {"step", "Memory over the step", html, ""};
}

}  // namespace headroom::report
