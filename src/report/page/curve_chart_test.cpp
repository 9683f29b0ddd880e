#include "report/page/curve_chart.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::report {
namespace {

CurveChart chart_of(std::vector<CurvePoint> points) {
  CurveChart chart;
  chart.description = "<b>";
  chart.curves.push_back({"logits", "a & b", std::move(points)});
  return chart;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(CurveChart, APointEachAndABandWhereThereIsAnInterval) {
  const std::string plain =
      curve_chart(chart_of({{1, 10, 10, 10, true, "one"}, {64, 20, 20, 20, true, "two"}})).markup();
  EXPECT_EQ(count(plain, "<circle"), 2U);
  EXPECT_EQ(count(plain, "class=\"band\""), 0U);
  EXPECT_NE(plain.find("<title>two</title>"), std::string::npos);
  const std::string banded =
      curve_chart(chart_of({{1, 10, 9, 11, false, ""}, {64, 20, 15, 30, false, ""}})).markup();
  EXPECT_EQ(count(banded, "class=\"band\""), 1U);
}

TEST(CurveChart, WhatCannotBeDrawnIsLeftOut) {
  EXPECT_TRUE(curve_chart(chart_of({})).empty());
  EXPECT_TRUE(curve_chart(chart_of({{NAN, 1, 1, 1, true, ""}, {0, 1, 1, 1, true, ""}})).empty());
  const std::string one =
      curve_chart(chart_of({{8, 1, 1, 1, true, ""}, {16, INFINITY, 1, 1, true, ""}})).markup();
  EXPECT_EQ(count(one, "<circle"), 1U);
  EXPECT_EQ(one.find("nan"), std::string::npos);
  EXPECT_EQ(one.find("inf"), std::string::npos);
}

TEST(CurveChart, WordsFromOutsideStayWords) {
  CurveChart chart = chart_of({{1, 1, 1, 1, true, "</title><script>"}, {2, 2, 2, 2, true, ""}});
  chart.upright = CurveMark{1, "<i>"};
  chart.level = CurveMark{1.5, "<u>"};
  const std::string markup = curve_chart(chart).markup();
  for (const char* raw : {"<b>", "<i>", "<u>", "<script>"}) {
    EXPECT_EQ(markup.find(raw), std::string::npos) << raw;
  }
}

}  // namespace
}  // namespace headroom::report
