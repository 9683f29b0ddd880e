#include "fit/measured/correction.h"

#include <algorithm>
#include <set>

#include "fit/device/device_used.h"

namespace headroom::fit {

namespace {

Bytes corrected(const Scenario& scenario, Metric metric, Bytes predicted) {
  const CalibrationLaw* law = law_of(scenario, metric);
  return law == nullptr ? predicted : law->apply(predicted);
}

// Of a figure that holds what is allocated: by its own law, or moved along with that.
Bytes carried(const Scenario& scenario, Metric metric, Bytes predicted, Bytes change) {
  return law_of(scenario, metric) == nullptr ? predicted + change
                                             : corrected(scenario, metric, predicted);
}

// Keeps the allocated components' sum equal to the peak.
void spread(ComponentBytes& breakdown, Bytes change) {
  breakdown[Component::other] += change;
  while (breakdown[Component::other] < Bytes(0)) {
    const auto end = breakdown.bytes.begin() + kAllocatedComponentCount;
    const auto largest = std::max_element(breakdown.bytes.begin(), end);
    if (*largest <= Bytes(0)) return;  // the sum is what the peak is: below nothing
    const Bytes taken = std::min(*largest, Bytes(-breakdown[Component::other].count));
    *largest -= taken;
    breakdown[Component::other] += taken;
  }
}

// Of laws none of which is put to a figure.
std::string why_it_is_silent(const Calibration& calibration) {
  std::set<std::string> devices;
  for (const CalibrationLaw& law : calibration.laws) {
    if (law.kind != LawKind::none) devices.insert(law.devices.begin(), law.devices.end());
  }
  if (devices.empty()) return calibration.laws.front().basis;
  std::string words = "it was measured on ";
  for (const std::string& device : devices) {
    words += (device == *devices.begin() ? "" : ", ") + device;
  }
  return words;
}

}  // namespace

const CalibrationLaw* law_of(const Scenario& scenario, Metric metric) {
  if (scenario.calibration == nullptr) return nullptr;
  return scenario.calibration->law_for(metric, scenario.device->name);
}

void correct(Prediction& p, const Scenario& scenario) {
  if (scenario.calibration == nullptr) return;
  const Bytes allocated = corrected(scenario, Metric::peak_allocated, p.peak_allocated);
  const Bytes change = allocated - p.peak_allocated;
  spread(p.breakdown, change);
  p.peak_allocated = allocated;
  p.steady_allocated = corrected(scenario, Metric::after_step, p.steady_allocated);
  p.peak_reserved =
      std::max(allocated, carried(scenario, Metric::peak_reserved, p.peak_reserved, change));
  Interval& used = p.device_used;
  const Bytes least = p.peak_allocated +
                      outside_allocator(*scenario.device, communicators_of(scenario.question)).low;
  for (Bytes* bound : {&used.low, &used.expected, &used.high}) {
    *bound = std::max(carried(scenario, Metric::device_used, *bound, change), least);
  }
}

Provenance provenance_of(const Scenario& scenario, Metric metric) {
  if (!scenario.assumptions.empty()) return Provenance::extrapolated;
  const bool holds_allocated = metric == Metric::peak_reserved || metric == Metric::device_used;
  const CalibrationLaw* law = law_of(scenario, metric);
  if (law == nullptr && holds_allocated) law = law_of(scenario, Metric::peak_allocated);
  if (law != nullptr) return Provenance::calibrated;
  return metric == Metric::device_used ? scenario.device->context.provenance : Provenance::counted;
}

std::vector<std::string> calibration_warnings(const Scenario& scenario,
                                              std::string_view measured_device) {
  std::vector<std::string> notes;
  for (const Metric metric : kMetrics) {
    const CalibrationLaw* law = law_of(scenario, metric);
    if (law == nullptr) continue;
    notes.push_back("corrected by " + scenario.calibration->name + ": " + law->sentence());
  }
  const bool is_silent =
      notes.empty() && scenario.calibration && !scenario.calibration->laws.empty();
  if (is_silent) {
    notes.push_back(scenario.calibration->name + " corrects nothing on " + scenario.device->name +
                    ": " + why_it_is_silent(*scenario.calibration));
  }
  if (!measured_device.empty() && measured_device != scenario.device->name) {
    notes.push_back("the calibration is of " + std::string(measured_device) +
                    ": the step's time does not follow from it");
  }
  return notes;
}

}  // namespace headroom::fit
