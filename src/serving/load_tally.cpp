#include "serving/load_tally.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace headroom::serving {
namespace {

constexpr size_t kMostBins = 100'000;  // 83 minutes

// Of the mean of values that are taken as independent; relative to it.
double relative_error(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return mean > 0 ? std::sqrt(squares / (count - 1) / count) / mean : 1;
}

}  // namespace

void LoadTally::add(double at, double gap_seconds) {
  if (!(at >= 0)) return;
  const auto bin = static_cast<size_t>(at / kBinSeconds);
  if (bin >= kMostBins) return;
  if (bins_.size() <= bin) bins_.resize(bin + 1);
  bins_[bin].chunks += 1;
  if (!(gap_seconds >= 0)) return;
  bins_[bin].gaps += 1;
  bins_[bin].gap_seconds += gap_seconds;
}

LoadTally::Errors LoadTally::errors(double seconds) const {
  const auto bins = static_cast<size_t>(std::max(0.0, seconds) / kBinSeconds);
  const size_t per_slice = bins / kSlices;
  if (per_slice == 0) return {};
  std::vector<double> rates;
  std::vector<double> gaps;
  for (size_t slice = 0; slice < kSlices; ++slice) {
    Bin sum;
    for (size_t i = slice * per_slice; i < (slice + 1) * per_slice && i < bins_.size(); ++i) {
      sum.chunks += bins_[i].chunks;
      sum.gaps += bins_[i].gaps;
      sum.gap_seconds += bins_[i].gap_seconds;
    }
    rates.push_back(sum.chunks);
    if (sum.gaps > 0) gaps.push_back(sum.gap_seconds / sum.gaps);
  }
  Errors errors;
  errors.throughput = relative_error(rates);
  if (gaps.size() >= kSlices / 2) errors.gap = relative_error(gaps);
  return errors;
}

}  // namespace headroom::serving
