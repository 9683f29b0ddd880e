#include "fit/measured/correction.h"

#include <gtest/gtest.h>

#include "fit/search/search.h"

namespace headroom::fit {
namespace {

Scenario scenario_of(const CalibrationLaw& law) {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.seq = 256;
  Scenario scenario = resolve(question).value();
  Calibration calibration;
  calibration.name = "c.json";
  calibration.laws = {law};
  scenario.calibration = std::make_shared<const Calibration>(std::move(calibration));
  return scenario;
}

CalibrationLaw offset_of(Metric metric, Bytes offset) {
  CalibrationLaw law;
  law.metric = metric;
  law.kind = LawKind::offset;
  law.offset = offset;
  law.devices = {"a100-sxm-80gb"};
  return law;
}

// What holds the allocated bytes moves along with them.
TEST(Correction, AnOffsetOfWhatIsAllocatedKeepsTheInterval) {
  constexpr Bytes kOffset(3 * kGiB);
  const Scenario scenario = scenario_of(offset_of(Metric::peak_allocated, kOffset));
  Scenario plain = scenario;
  plain.calibration = nullptr;
  const Prediction before = predict(plain).value();
  const Prediction after = predict(scenario).value();
  EXPECT_EQ(after.peak_allocated, before.peak_allocated + kOffset);
  EXPECT_EQ(after.peak_reserved, before.peak_reserved + kOffset);
  EXPECT_EQ(after.device_used.low, before.device_used.low + kOffset);
  EXPECT_EQ(after.device_used.high, before.device_used.high + kOffset);
  EXPECT_EQ(provenance_of(scenario, Metric::peak_reserved), Provenance::calibrated);
  EXPECT_EQ(provenance_of(scenario, Metric::after_step), Provenance::counted);
}

TEST(Correction, NoOffsetTakesAllOfASmallModel) {
  const Scenario scenario = scenario_of(offset_of(Metric::peak_allocated, Bytes(-500 * kGiB)));
  const Prediction after = predict(scenario).value();
  EXPECT_GT(after.peak_allocated, Bytes(0));
  EXPECT_GE(after.device_used.low, after.peak_allocated);
}

// Where its laws were learned is said, not how.
TEST(Correction, OfAnotherDeviceItSaysWhichOnesItKnows) {
  CalibrationLaw law = offset_of(Metric::device_used, Bytes(kGiB));
  law.devices = {"h100-sxm-80gb"};
  const auto lines = calibration_warnings(scenario_of(law), "");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("corrects nothing on a100-sxm-80gb: it was measured on h100-sxm-80gb"),
            std::string::npos)
      << lines[0];
  const auto both = calibration_warnings(scenario_of(law), "h100-sxm-80gb");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_NE(both[1].find("calibration is of h100-sxm-80gb"), std::string::npos);
}

}  // namespace
}  // namespace headroom::fit
