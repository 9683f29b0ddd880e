#include "batch/workload.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace headroom::batch {
namespace {

// Expectations over requests of what the context's moments need.
struct Moments {
  double input = 0;
  double output = 0;
  double first = 0;   // O (I + O/2)
  double second = 0;  // O (I^2 + I O + O^2/3)
};

Workload workload_of(const Moments& moments) {
  Workload workload;
  workload.input_mean = moments.input;
  workload.output_mean = moments.output;
  workload.context_mean = moments.first / moments.output;
  const double square = moments.second / moments.output;
  workload.context_deviation =
      std::sqrt(std::max(0.0, square - workload.context_mean * workload.context_mean));
  return workload;
}

}  // namespace

Workload workload_of(const std::vector<formats::RequestLengths>& requests) {
  HEADROOM_CHECK(!requests.empty(), "a workload has requests");
  const auto count = static_cast<double>(requests.size());
  Moments moments;
  for (const formats::RequestLengths& request : requests) {
    const auto in = static_cast<double>(request.input_tokens);
    const auto out = static_cast<double>(request.output_tokens);
    moments.input += in / count;
    moments.output += out / count;
    moments.first += out * (in + out / 2) / count;
    moments.second += out * (in * in + in * out + out * out / 3) / count;
  }
  return workload_of(moments);
}

Workload workload_of(double input_mean, double output_mean, double variation) {
  const double squares = 1 + variation * variation;                // E[x^2] / E[x]^2 of a gamma
  const double cubes = squares * (1 + 2 * variation * variation);  // E[x^3] / E[x]^3
  const double in = input_mean;
  const double out = output_mean;
  Moments moments;
  moments.input = in;
  moments.output = out;
  moments.first = out * in + out * out * squares / 2;
  moments.second = out * in * in * squares + in * out * out * squares + out * out * out * cubes / 3;
  return workload_of(moments);
}

double kv_tokens_needed(double running, const Workload& workload) {
  constexpr double kNinetyFifth = 1.645;
  return running * (workload.context_mean + kKvBlock / 2) +
         kNinetyFifth * workload.context_deviation * std::sqrt(running);
}

}  // namespace headroom::batch
