// Calibration: what measurements say about our predictions, and the correction that follows.
//
// For each metric one law, "predicted x ratio" or "predicted + offset", or none. A correction must
// not do harm to models that it was not learned on, so it is there only where the data compel it:
//   1. Residuals are taken by model, a model's being the median over its rows, so that one model
//      with many rows does not speak for all. The law is the median over models, shrunk towards
//      none by its own standard error.
//   2. With two models or more, the residuals differ from none by a t test at 0.5 % (two-sided; two
//      models at 2 %), and the law learned without a model at least halves the median error of the
//      models left out and worsens none of them.
//   3. With one model, only an offset, and only where rows whose predictions differ twofold agree
//      on it within 5 %: an offset that does not change with the size of the run.
//   4. It gains at least kLeastGainPct, or kLeastGainOfFewModelsPct. Below that the step model is
//      as good as its own claim, and a correction would fit noise.
// Where 2 to 4 do not hold the law is none, and says why. What no data can rule out: models of
// which those learned on err in one way, and all others in another.
//
// Pure values; thread-safe. Learning is O(n log n) in the rows for each model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "fit/answer.h"
#include "fit/measured/measured_row.h"

namespace headroom::fit {

inline constexpr double kLeastGainPct = 0.5;
inline constexpr double kLeastGainOfFewModelsPct = 1.0;  // of one or two
// A law beyond these is no correction, but another model.
inline constexpr Bytes kMostOffset{int64_t{1} << 40};
inline constexpr double kMostRatio = 8;

// One measured figure beside what was predicted for it. Both are positive.
struct CalibrationPoint {
  std::string id;
  std::string source;
  std::string model;
  std::string device;  // canonical: "a100-sxm-80gb"
  std::string torch;
  std::string transformers;
  Metric metric = Metric::peak_allocated;
  Bytes predicted;
  Bytes measured;
};

enum class LawKind : uint8_t { none, offset, ratio };
[[nodiscard]] std::string_view name_of(LawKind kind);

struct CalibrationLaw {
  Metric metric = Metric::peak_allocated;
  LawKind kind = LawKind::none;
  Bytes offset;      // for LawKind::offset
  double ratio = 1;  // for LawKind::ratio
  int64_t rows = 0;
  int64_t models = 0;
  std::vector<std::string> devices;  // where it was measured, sorted
  double error_before_pct = 0;       // median over models of the median |error|, uncorrected
  double error_after_pct = 0;        // the same of models that were left out while learning
  std::string basis;                 // how error_after_pct was found, or why there is no law

  // A prediction with this law, within [0, 2^62].
  [[nodiscard]] Bytes apply(Bytes predicted) const;
  // One line: "peak_allocated: +512.0 MiB, from 12 rows of 3 models (...)".
  [[nodiscard]] std::string sentence() const;
};

struct Calibration {
  std::string name;          // the file it is in, for people
  std::string learned_from;  // the file of measurements
  std::string version;       // of the Headroom that predicted
  std::vector<CalibrationPoint> points;
  std::vector<CalibrationLaw> laws;  // one a metric at most

  // The law for a metric on a device; nullptr where there is none, or where the metric belongs to
  // the device (what nvidia-smi shows) and this one was not measured.
  [[nodiscard]] const CalibrationLaw* law_for(Metric metric, std::string_view device) const;
};

// One law for each metric that has points.
[[nodiscard]] std::vector<CalibrationLaw> learn(const std::vector<CalibrationPoint>& points);

}  // namespace headroom::fit
