#include "timing/int8_quotient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/median.h"
#include "timing/tiny_processor.h"

namespace headroom::timing {
namespace {

// Quantizing what goes in is a larger part where little is multiplied.
double quotient_of(const GemmShape& shape) {
  return 0.25 + 60.0 / static_cast<double>(shape.n) + 0.5 / static_cast<double>(shape.m);
}

GemmShape draw(std::mt19937& random) {
  const auto between = [&](double low, double high) {
    std::uniform_real_distribution<double> logs(std::log(low), std::log(high));
    return static_cast<int64_t>(std::exp(logs(random)));
  };
  return {.m = between(1, 1024), .n = between(256, 8192), .k = between(256, 8192)};
}

// Each shape was measured both ways at a time at which the machine was up to twice as slow.
std::vector<MeasuredPoint> pairs(size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> slowed(1, 2);
  std::vector<MeasuredPoint> points;
  for (size_t i = 0; i < count; ++i) {
    const GemmShape shape = draw(random);
    MeasuredPoint floats;
    floats.call = gemm_call(shape, device::Rate::fp32, 4);
    floats.seconds = (1e-6 + floats.call.flops / 1e11) * slowed(random);
    MeasuredPoint int8;
    int8.call = linear_int8_call(shape, 4);
    int8.seconds = floats.seconds * quotient_of(shape);
    points.push_back(floats);
    points.push_back(int8);
  }
  return points;
}

TEST(Int8Quotient, WhatSlowsBothTakesNoPart) {
  const auto law = Int8Quotient::fit(tiny_processor(), pairs(40));
  ASSERT_TRUE(law);
  std::mt19937 random(11);
  std::vector<double> errors;
  size_t inside = 0;
  for (size_t i = 0; i < 100; ++i) {
    const GemmShape shape = draw(random);
    const auto found = law->of(shape);
    ASSERT_TRUE(found);
    errors.push_back(std::abs(found->middle / quotient_of(shape) - 1));
    inside += found->low <= quotient_of(shape) && quotient_of(shape) <= found->high ? 1 : 0;
  }
  EXPECT_LT(median(errors), 0.08);
  EXPECT_GE(inside, 80U);
}

TEST(Int8Quotient, NeedsShapesThatWereMeasuredBothWays) {
  EXPECT_FALSE(Int8Quotient::fit(tiny_processor(), {}));
  EXPECT_FALSE(Int8Quotient::fit(tiny_processor(), pairs(11)));
  auto points = pairs(40);
  std::erase_if(points, [](const MeasuredPoint& point) {
    return point.call.kind == OperatorClass::gemm_fp32;
  });
  EXPECT_FALSE(Int8Quotient::fit(tiny_processor(), points));
}

}  // namespace
}  // namespace headroom::timing
