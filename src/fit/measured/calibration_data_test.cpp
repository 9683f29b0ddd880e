// A correction learned on half the models of a real file of measurements, put to the other half.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "fit/fit.h"
#include "fit/measured/calibration_file.h"
#include "tests/tools/room_test.h"

namespace headroom::fit {
namespace {

std::string measurements() { return tests::data_dir() / "peak_memory/measured.csv"; }

std::vector<CalibrationPoint> points_of(const std::string& file, const std::string& save_at) {
  AgainstQuestion question;
  question.file = file;
  question.save_calibration = save_at;
  const auto answered = answer_against(question);
  if (!answered) return {};
  const auto saved = load_calibration(save_at);
  return saved ? saved->points : std::vector<CalibrationPoint>{};
}

double median_error(const std::vector<CalibrationPoint>& points, const CalibrationLaw* law) {
  std::vector<double> errors;
  for (const CalibrationPoint& p : points) {
    const auto truth = static_cast<double>(p.measured.count);
    const Bytes said = law != nullptr ? law->apply(p.predicted) : p.predicted;
    errors.push_back(std::abs(static_cast<double>(said.count) - truth) / truth);
  }
  std::ranges::sort(errors);
  return errors[errors.size() / 2];
}

class RealMeasurements : public testing::Test {
 protected:
  void SetUp() override {
    const std::string saved = testing::TempDir() + "headroom_calibration_data.json";
    points_ = points_of(measurements(), saved);
    if (points_.empty()) GTEST_SKIP() << "no data: " << measurements();
    std::set<std::string> names;
    for (const CalibrationPoint& p : points_) names.insert(p.model);
    models_.assign(names.begin(), names.end());
    if (models_.size() < 2) GTEST_SKIP() << "fewer than two models can be predicted yet";
  }

  // Calls visit(learned_on, held_aside) for every way to take half the models (at most 512 ways).
  template <typename Visit>
  void each_half(Metric metric, double offset, const Visit& visit) {
    const size_t count = std::min<size_t>(models_.size(), 16);
    size_t visited = 0;
    for (uint32_t mask = 1; mask + 1 < (1U << count) && visited < 512; ++mask) {
      if (static_cast<size_t>(__builtin_popcount(mask)) != count / 2) continue;
      std::vector<CalibrationPoint> learned_on;
      std::vector<CalibrationPoint> held_aside;
      for (CalibrationPoint p : points_) {
        if (p.metric != metric) continue;
        p.measured += Bytes(std::llround(offset));
        const auto at = std::ranges::find(models_, p.model) - models_.begin();
        const bool learn_it = at < 16 && (mask >> at & 1U) != 0;
        (learn_it ? learned_on : held_aside).push_back(p);
      }
      if (learned_on.empty() || held_aside.empty()) continue;
      visit(learned_on, held_aside);
      ++visited;
    }
  }

  std::vector<CalibrationPoint> points_;
  std::vector<std::string> models_;
};

TEST_F(RealMeasurements, TheOtherHalfIsNeverMadeWorse) {
  for (const Metric metric : kMetrics) {
    each_half(metric, 0, [&](const auto& learned_on, const auto& held_aside) {
      const CalibrationLaw law = learn(learned_on)[0];
      EXPECT_LE(median_error(held_aside, &law), median_error(held_aside, nullptr))
          << name_of(metric) << " " << law.sentence();
    });
  }
}

TEST_F(RealMeasurements, AnInjectedOffsetIsRemovedWhereTwoModelsTeach) {
  for (const Metric metric : {Metric::peak_allocated, Metric::after_step}) {
    each_half(metric, 2e9, [&](const auto& learned_on, const auto& held_aside) {
      std::set<std::string> teachers;
      for (const CalibrationPoint& p : learned_on) teachers.insert(p.model);
      if (teachers.size() < 2) return;
      const CalibrationLaw law = learn(learned_on)[0];
      EXPECT_LT(median_error(held_aside, &law), 0.25 * median_error(held_aside, nullptr))
          << name_of(metric) << " " << law.sentence();
    });
  }
}

}  // namespace
}  // namespace headroom::fit
