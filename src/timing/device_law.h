// A law of one device, from points that were measured on it and nothing else.
//
// For machines that the general laws were not fitted on, processors above all. The law is the
// device's roofline with a start; what a point's time differs from it is taken for a smooth
// function of a few features (kriging.h), so that the law is used together with its points
// (TimingModel::correct). Its length along each feature and its noise are chosen by leaving out
// points one by one; the error that the law states is of points that took no part in that choice
// either (five folds). O(n^3) for n points of a class, some hundred times: 100 ms for 128.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "timing/law.h"
#include "timing/measured_point.h"

namespace headroom::timing {

// What is below it has no error that 90 % could be said of.
inline constexpr size_t kLeastPointsOfALaw = 12;

// An Error where there are fewer points than that or more than TimingModel::kMostPoints, or where
// the device lacks a figure that its roofline needs. REQUIRES: all points are of one class.
Result<Law> fit_device_law(const device::Device& device, const std::vector<MeasuredPoint>& points);

// Without the points that other work on the machine disturbed beyond use: those whose own median is
// unsure by half, and those that are further from the law of the rest than points may be.
Result<std::vector<MeasuredPoint>> undisturbed(const device::Device& device,
                                               std::vector<MeasuredPoint> points);

// By how much 90 % of such points differ at most, as a logarithm, from those of another run on the
// same machine: found from what two rounds of one run differ by, since a run's point is the mean of
// its rounds. Nothing where all points have one round. What the machine does in an hour and not in
// minutes it cannot know.
[[nodiscard]] std::optional<double> spread_log(const std::vector<MeasuredPoint>& points);

// Median of |roofline / measured - 1| over the points, in percent: what a law is held against.
Result<double> roofline_error_pct(const device::Device& device,
                                  const std::vector<MeasuredPoint>& points);

}  // namespace headroom::timing
