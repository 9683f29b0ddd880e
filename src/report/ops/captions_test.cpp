#include "report/ops/captions.h"

#include <gtest/gtest.h>

namespace headroom::report {
namespace {

TEST(OpsCaptions, WhyTheDeviceIdles) {
  ops::OpsAnswer answer;
  answer.trace.has_device = true;
  EXPECT_EQ(idle_words(answer), "");
  answer.idle = {10, 8, 1.5, 0.5};
  EXPECT_EQ(idle_words(answer),
            "idle: 80.0 % waiting for the host, 15.0 % launched and not begun, 5.0 % for what is "
            "not in the trace");
  answer.idle = {10, 0, 10, 0};
  EXPECT_EQ(idle_words(answer), "idle: 100.0 % launched and not begun");
  answer.trace.has_device = false;
  EXPECT_EQ(idle_words(answer), "");
}

TEST(OpsCaptions, WhatBetweenIs) {
  ops::OpsAnswer answer;
  answer.trace.has_device = true;
  EXPECT_NE(between_words(answer).find("no confidence interval"), std::string::npos);
  answer.trace.has_device = false;
  EXPECT_EQ(between_words(answer).find("latencies"), std::string::npos);
}

}  // namespace
}  // namespace headroom::report
