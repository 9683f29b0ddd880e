// Workload: the lengths of requests, as far as a server at a fixed batch feels them.
//
// What is in flight is not what arrives: a request that writes more stays longer, so it is met in
// proportion to its output, at a uniformly random place of its answer. With input I and output O of
// a request, the context of a sequence in flight has the mean E[O (I + O/2)] / E[O] and the second
// moment E[O (I^2 + I O + O^2/3)] / E[O]. Pure; thread-safe.
#pragma once

#include <vector>

#include "formats/request_lengths.h"

namespace headroom::batch {

struct Workload {
  double input_mean = 0;  // tokens, of the requests
  double output_mean = 1;
  double context_mean = 0;  // tokens that a sequence in flight holds
  double context_deviation = 0;
};

// REQUIRES: requests are not empty.
[[nodiscard]] Workload workload_of(const std::vector<formats::RequestLengths>& requests);

// Input and output independent, each gamma distributed with this coefficient of variation: 0 is
// fixed lengths, 1 exponential ones.
[[nodiscard]] Workload workload_of(double input_mean, double output_mean, double variation);

// Tokens that `running` sequences hold at nearly every moment (95 %). They are at places of their
// own, so their sum spreads as the root of their number; and each leaves half a block empty.
[[nodiscard]] double kv_tokens_needed(double running, const Workload& workload);

inline constexpr double kKvBlock = 16;  // tokens, vLLM's default

}  // namespace headroom::batch
