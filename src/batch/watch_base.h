// The law of a server's steps that watching starts from: measured, predicted, or learned from the
// traffic while what is in flight varies.
//
// Watching corrects how the law grows with what is in flight (contexts do that) and keeps the rest.
// StepBase is made once; LineLearner is fed slice by slice. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "batch/curve.h"
#include "formats/serving_points.h"

namespace headroom::batch {

struct StepBase {
  std::function<double(double)> seconds;  // of a step, with so many in flight
  // Standard error of the part of it that does not grow with what is in flight.
  double base_error_seconds = 0;
  int64_t most_batch = 256;  // that it speaks of
  Provenance provenance = Provenance::measured;
  std::string source;  // for people
};

// An Error where the points make no law.
Result<StepBase> base_of_points(const std::vector<formats::ServingPoint>& points,
                                const std::string& file);

// Of a curve that is predicted: its candidates, with straight lines between them.
Result<StepBase> base_of_prediction(const PredictedCurve& curve, const std::string& source);

// A line through what was seen, by the least squares of relative errors over means of slices with
// about as many in flight. It says nothing before in flight varied by a factor of two and its
// intercept is known to a quarter.
class LineLearner {
 public:
  void add(double in_flight, double itl_seconds);
  [[nodiscard]] std::optional<StepBase> base() const;
  // The least and the most that were in flight, by bins.
  [[nodiscard]] double spread() const;

 private:
  struct Bin {
    double count = 0;
    double in_flight = 0;  // mean
    double seconds = 0;
    double squares = 0;  // of deviations of the seconds
  };
  std::map<int, Bin> bins_;  // by sixteenths of a doubling
};

}  // namespace headroom::batch
