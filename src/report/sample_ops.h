// A sample ops answer and its timeline, for tests of pages. Not part of the product.
#pragma once

#include "ops/answer.h"
#include "ops/comparison.h"
#include "ops/predicted.h"
#include "ops/ranks.h"
#include "ops/timeline.h"

namespace headroom::report {

struct SampleOps {
  ops::OpsAnswer answer;
  ops::Timeline timeline;
};

// A run of `operators` operators; `words` stand wherever something comes from outside.
[[nodiscard]] SampleOps sample_ops(const char* words, int operators);

// Two runs of which the second has more operators, three ranks of which the last keeps the others
// waiting, and a step that nobody ran.
[[nodiscard]] ops::OpsComparison sample_comparison(const char* words);
[[nodiscard]] ops::RanksAnswer sample_ranks(const char* words);
[[nodiscard]] ops::PredictedRun sample_predicted(const char* words);

}  // namespace headroom::report
