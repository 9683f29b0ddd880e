// What came in a window, in slices of time, for the standard errors of its means while it is open.
//
// Counts chunks, each with the gap to the one before it in its stream. Bins of 50 ms are joined to
// kSlices slices; their spread gives the standard error of the mean (batch means). Constant time a
// chunk; not thread-safe.
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
    double chunks = 0;
    double gaps = 0;  // chunks that have one before them
    double gap_seconds = 0;
  };
  std::vector<Bin> bins_;
};

}  // namespace headroom::serving
