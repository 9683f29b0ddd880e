// How many times as long a processor's linear layer takes in int8 as in float32, by its shape: a
// law of the quotient, from shapes that one calibration measured both ways.
//
// Two laws of times have each smoothed over its own noise, and their quotient has the errors of
// both. What a shape does to the caches, and what else the machine did in those minutes, stands
// above and below the line, so that the measured quotient is the smoother figure
// (docs/measurements/2026-11-22-ops-pairs-ort). The law is one of device_law.h, of a call whose
// roofline is the same for all shapes. O(n^3) for n shapes, some hundred times; pure.
#pragma once

#include <optional>
#include <vector>

#include "device/device.h"
#include "timing/measured_point.h"
#include "timing/timing_model.h"

namespace headroom::timing {

// With its 90 % interval.
struct Quotient {
  double low = 1;
  double middle = 1;
  double high = 1;
};

class Int8Quotient {
 public:
  // Nothing where fewer than kLeastPointsOfALaw shapes were measured both ways on the processor.
  static std::optional<Int8Quotient> fit(const device::Device& processor,
                                         const std::vector<MeasuredPoint>& points);

  // Nothing where the law cannot say.
  [[nodiscard]] std::optional<Quotient> of(const GemmShape& shape) const;

 private:
  device::Device processor_;
  TimingModel model_;
};

}  // namespace headroom::timing
