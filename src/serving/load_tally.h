// What came in a window, in slices of time, for the standard errors of its means while it is open.
//
// Bins of 50 ms are joined to kSlices slices; the spread of their means gives the standard error
// (batch means). Tokens come in lots, one step of the server at a time, so counting them by slice
// would mostly show where the slices cut; throughput is in flight over the time between tokens, and
// has the errors of both, which do not. Some bins a chunk; not thread-safe.
#pragma once

#include <cstddef>
#include <vector>

namespace headroom::serving {

class LoadTally {
 public:
  static constexpr double kBinSeconds = 0.05;
  static constexpr size_t kSlices = 16;

  // `at` seconds into the window; negative: before it, passed over.
  void add(double at, double gap_seconds);

  struct Errors {
    double throughput = 1;  // relative standard errors; 1 where nothing is known
    double gap = 1;
  };
  // Of the window's first `seconds`.
  [[nodiscard]] Errors errors(double seconds) const;

 private:
  struct Bin {
    double gaps = 0;         // that ended in it
    double gap_seconds = 0;  // of these
    double decoding = 0;     // seconds of gaps that lie in it
  };
  Bin* bin_at(double at);
  std::vector<Bin> bins_;
};

}  // namespace headroom::serving
