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

LoadTally::Bin* LoadTally::bin_at(double at) {
  const auto bin = static_cast<size_t>(at / kBinSeconds);
  if (bin >= kMostBins) return nullptr;
  if (bins_.size() <= bin) bins_.resize(bin + 1);
  return &bins_[bin];
}

void LoadTally::add(double at, double gap_seconds) {
  if (!(at >= 0) || !(gap_seconds >= 0)) return;
  Bin* const last = bin_at(at);
  if (last == nullptr) return;
  last->gaps += 1;
  last->gap_seconds += gap_seconds;
  double from = std::max(0.0, at - gap_seconds);
  for (auto bin = static_cast<size_t>(from / kBinSeconds); from < at && bin < bins_.size(); ++bin) {
    const double until = std::min(at, static_cast<double>(bin + 1) * kBinSeconds);
    if (until > from) bins_[bin].decoding += until - from;
    from = std::max(from, until);
  }
}

LoadTally::Errors LoadTally::errors(double seconds) const {
  const auto bins = static_cast<size_t>(std::max(0.0, seconds) / kBinSeconds);
  const size_t per_slice = bins / kSlices;
  if (per_slice == 0) return {};
  std::vector<double> running;
  std::vector<double> gaps;
  for (size_t slice = 0; slice < kSlices; ++slice) {
    Bin sum;
    for (size_t i = slice * per_slice; i < (slice + 1) * per_slice && i < bins_.size(); ++i) {
      sum.gaps += bins_[i].gaps;
      sum.gap_seconds += bins_[i].gap_seconds;
      sum.decoding += bins_[i].decoding;
    }
    // The last slice lacks the gaps that have not ended.
    if (slice + 1 < kSlices) running.push_back(sum.decoding);
    if (sum.gaps > 0) gaps.push_back(sum.gap_seconds / sum.gaps);
  }
  Errors errors;
  if (gaps.size() < kSlices / 2) return errors;
  errors.gap = relative_error(gaps);
  errors.throughput = std::hypot(errors.gap, relative_error(running));
  return errors;
}

}  // namespace headroom::serving
