// A sample ops answer and its timeline, for tests of pages. Not part of the product.
#pragma once

#include "ops/answer.h"
#include "ops/timeline.h"

namespace headroom::report {

struct SampleOps {
  ops::OpsAnswer answer;
  ops::Timeline timeline;
};

// A run of `operators` operators; `words` stand wherever something comes from outside.
[[nodiscard]] SampleOps sample_ops(const char* words, int operators);

}  // namespace headroom::report
