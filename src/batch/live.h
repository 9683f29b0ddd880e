// The live loop: which batch to measure next on a running server, until the best is known.
//
// One alone comes first, then the batch that the target is a multiple of, or one in the middle;
// then B_opt by the law through the points, since what is recommended has to be measured, and then
// always the candidate whose verdict is most uncertain: the law gives each candidate a probability
// p of meeting target and efficiency, and p (1 - p) is the variance of that verdict. One that was
// measured comes again only where that could settle it. When nothing is left that could decide
// anything, the largest follows, briefly: B_opt is held against it, and it may know better than the
// law did. So batches mostly grow, and what is in flight serves for the next (serving/load.h): all
// of them together begin hardly more requests than the largest alone has.
//
// Where a server keeps requests waiting, what was in flight is its own limit: the point counts for
// that batch, and no larger one is asked for.
//
// The outside world is behind BatchMeter. Not thread-safe; its time is the meter's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "batch/target.h"
#include "formats/serving_points.h"
#include "serving/load_summary.h"

namespace headroom::batch {

struct LiveMeasurement {
  formats::ServingPoint point;
  serving::LoadSummary summary;
};

// How long a batch is watched: until its errors are small, or, where no verdict hangs on it, until
// they are known.
enum class Care : uint8_t { brief, full };

class BatchMeter {
 public:
  virtual ~BatchMeter() = default;
  virtual Result<LiveMeasurement> measure(int64_t batch, Care care) = 0;
};

struct LiveOptions {
  std::optional<ItlTarget> slo;
  double min_efficiency = 0.1;
  int64_t most_batch = 256;
  int most_measurements = 12;
  std::vector<int64_t>
      batches;  // these, in this order, and no others; empty: what the loop chooses
  // True: no time for another one.
  std::function<bool()> is_late = [] { return false; };
  // What was measured so far, after each measurement; an Error ends the loop.
  std::function<Result<void>(const std::vector<LiveMeasurement>&)> on_measured = [](const auto&) {
    return Result<void>();
  };
};

struct LiveResult {
  std::vector<LiveMeasurement> measurements;  // in the order in which they were made; none is void
  // The interval of B_opt holds one batch, and that was measured; or none meets the target.
  bool is_sure = false;
  bool is_stopped = false;     // by a limit, or by the error
  std::optional<Error> error;  // of the server; what was measured before is kept
  std::vector<std::string> notes;
};

[[nodiscard]] LiveResult measure_live(BatchMeter& meter, const LiveOptions& options);

[[nodiscard]] std::vector<formats::ServingPoint> points_of(
    const std::vector<LiveMeasurement>& measurements);

// The point of a window. Where requests wait for others, its batch is what was in flight.
[[nodiscard]] formats::ServingPoint point_of(const serving::LoadSummary& summary);

}  // namespace headroom::batch
