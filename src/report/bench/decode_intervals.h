// 90 % intervals of what follows from a predicted step's times: shares, and amounts a second.
//
// Classes are predicted by laws of their own and taken to err apart from each other. Pure.
#pragma once

#include "timing/decode_step.h"

namespace headroom::report {

struct Spread {
  double low = 0;
  double high = 0;
};

// Of the share, 0 to 1, that a part has of a step. REQUIRES: `part` is one of the step's times.
[[nodiscard]] Spread share_spread(const timing::DecodeStep& step, const timing::TimeInterval& part);

// Of an amount (tokens, bytes) a second. REQUIRES: the time's low end is above 0, or 0 as a whole.
[[nodiscard]] Spread rate_spread(double amount, const timing::TimeInterval& time);

}  // namespace headroom::report
