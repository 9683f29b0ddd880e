#include "fit/explain.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "fit/components.h"

namespace headroom::fit {

namespace {

const step::PhaseMark* phase_at(const step::StepTrace& trace, size_t event) {
  const step::PhaseMark* current = nullptr;
  for (const step::PhaseMark& mark : trace.phases) {
    if (mark.first_event > event) break;
    current = &mark;
  }
  return current;
}

struct Place {
  std::string_view phase;
  std::string_view module;
  std::string_view op;
  int iteration = 0;
};

Place place_of(const step::StepTrace& trace, size_t event) {
  Place place;
  if (const step::PhaseMark* mark = phase_at(trace, event)) {
    place.phase = step::name_of(mark->phase);
    place.iteration = mark->iteration;
  }
  if (event >= trace.memory.events.size()) return place;
  const uint32_t call = trace.memory.events[event].operation;
  if (call < trace.calls.size()) {
    place.op = op::name_of(trace.calls[call].kind);
    place.module = trace.modules[trace.calls[call].module];
  }
  return place;
}

// The two largest components, as words.
std::string largest_components(const ComponentBytes& bytes) {
  std::vector<Component> order;
  for (size_t i = 0; i < kAllocatedComponentCount; ++i) order.push_back(static_cast<Component>(i));
  std::ranges::stable_sort(order, [&](Component a, Component b) { return bytes[a] > bytes[b]; });
  return std::string(label_of(order[0])) + " (" + format_bytes(bytes[order[0]]) + ") and " +
         std::string(label_of(order[1])) + " (" + format_bytes(bytes[order[1]]) + ")";
}

std::string reason(const DetailedPrediction& detail, const Place& place) {
  const std::string who = largest_components(detail.prediction.breakdown);
  if (place.phase == "optimizer") {
    return "The optimizer holds its temporaries beside weights, gradients and states: " + who +
           " are the most";
  }
  if (place.phase == "backward" && (place.module == "loss" || place.module == "lm_head")) {
    return "The loss runs backward while all saved activations are still held: " + who +
           " are the most";
  }
  if (place.phase == "backward") {
    return "Backward holds what is still saved, and the gradients made so far: " + who +
           " are the most";
  }
  if (place.module == "loss" || place.module == "lm_head") {
    return "The logits and their copies are made while all saved activations are held: " + who +
           " are the most";
  }
  return "Forward saves activations as it goes: " + who + " are the most";
}

}  // namespace

PeakPlace peak_place(const DetailedPrediction& detail) {
  const Place place = place_of(detail.trace, detail.prediction.peak_event);
  PeakPlace peak;
  peak.event = static_cast<int64_t>(detail.prediction.peak_event);
  peak.phase = place.phase;
  peak.module = place.module;
  peak.op = place.op;
  peak.why = reason(detail, place);
  return peak;
}

Timeline timeline_of(const DetailedPrediction& detail) {
  Timeline timeline;
  timeline.labels.emplace_back();
  std::unordered_map<std::string, uint32_t> ids;
  const auto label = [&](std::string text) {
    if (text.empty()) return uint32_t{0};
    const auto [entry, is_new] =
        ids.try_emplace(text, static_cast<uint32_t>(timeline.labels.size()));
    if (is_new) timeline.labels.push_back(std::move(text));
    return entry->second;
  };
  for (const memory::TimelinePoint& point : detail.replay.timeline) {
    const Place place = place_of(detail.trace, point.event);
    std::string phase(place.phase);
    if (place.iteration == 1) phase = "first step: " + phase;
    TimelinePoint shown;
    shown.event = static_cast<int64_t>(point.event);
    shown.phase = label(std::move(phase));
    shown.module = label(std::string(place.module));
    shown.op = label(std::string(place.op));
    shown.reserved = Bytes(point.reserved_bytes);
    shown.bytes = components_of(point.allocated_bytes);
    if (point.event == detail.prediction.peak_event) timeline.peak = timeline.points.size();
    timeline.points.push_back(shown);
  }
  return timeline;
}

}  // namespace headroom::fit
