#include "report/ops/comparison.h"

#include <gtest/gtest.h>

#include "report/sample_ops.h"

namespace headroom::report {
namespace {

using ops::ChangeReason;

ops::OperatorChange hidden(ChangeReason reason, double before_kernel_ms, double after_kernel_ms) {
  ops::OperatorChange change;
  change.reason = reason;
  change.before_kernel_ms = before_kernel_ms;
  change.after_kernel_ms = after_kernel_ms;
  return change;
}

// What is hidden may take longer or less itself: "as long" is said where that is so.
TEST(OpsComparisonWords, WhatIsHiddenMoreOrLess) {
  const auto words = [](ChangeReason reason, double before, double after) {
    return change_reason_words(hidden(reason, before, after));
  };
  EXPECT_EQ(words(ChangeReason::hidden_more, 27.26, 38.17),
            "takes 40 % longer, but more of it beside other work");
  EXPECT_EQ(words(ChangeReason::hidden_more, 10, 9),
            "takes 10 % less, and more of it beside other work");
  EXPECT_EQ(words(ChangeReason::hidden_less, 10, 12),
            "takes 20 % longer, and less of it beside other work");
  EXPECT_EQ(words(ChangeReason::hidden_less, 10, 8),
            "takes 20 % less, but less of it beside other work");
  EXPECT_EQ(words(ChangeReason::hidden_more, 10, 25),
            "takes 2.5 times as long, but more of it beside other work");
  EXPECT_EQ(words(ChangeReason::hidden_less, 10, 10.05), "as long, less of it beside other work");
}

TEST(OpsComparisonWords, FiguresThatDifferAreToldApart) {
  ops::OperatorChange change;
  const auto calls = [&](double before, double after) {
    change.reason = ChangeReason::more_calls;
    change.before_count = before;
    change.after_count = after;
    return change_reason_words(change);
  };
  EXPECT_EQ(calls(2, 3), "2 calls became 3");
  EXPECT_EQ(calls(2, 2), "2 calls as before");  // of other shapes
  EXPECT_EQ(calls(1, 2.5), "1 call became 2.5");
  EXPECT_EQ(calls(2, 2.04), "2.00 calls became 2.04");
  EXPECT_EQ(calls(1.9998, 2.0003), "1.9998 calls became 2.0003");
  change = {};
  change.reason = ChangeReason::each_slower;
  change.before_count = change.after_count = 1;
  change.before_kernel_ms = 0.05501;
  change.after_kernel_ms = 0.05504;
  EXPECT_EQ(change_reason_words(change), "55.01 us each became 55.04 us");
}

TEST(OpsComparisonWords, NewAndGoneAndEarlier) {
  ops::OperatorChange change;
  change.reason = ChangeReason::added;
  change.after_count = 1;
  EXPECT_EQ(change_reason_words(change), "new, 1 call");
  change.after_count = 0.02;  // one in fifty steps
  EXPECT_EQ(change_reason_words(change), "new, 0.020 calls");
  change = {};
  change.reason = ChangeReason::backlog;
  change.after_ms = change.after_backlog_ms = 3;
  EXPECT_EQ(change_reason_words(change), "earlier work still running in the step");
  change.before_ms = change.before_backlog_ms = 1;
  EXPECT_EQ(change_reason_words(change), "more earlier work still running in the step");
  change.before_ms = change.before_backlog_ms = 5;
  EXPECT_EQ(change_reason_words(change), "less earlier work still running in the step");
}

}  // namespace
}  // namespace headroom::report
