// The probability of running out of memory beside runs of which it is known whether they did.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "base/file.h"
#include "device/catalogue.h"
#include "fit/device/device_used.h"
#include "fit/device/oom_probability.h"
#include "fit/measured/measured_row.h"
#include "fit/prediction.h"
#include "fit/scenario/scenario.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"

namespace headroom::fit {
namespace {

std::string measurements() { return tests::data_dir() / "peak_memory/measured.csv"; }

Result<text::CsvTable> table_of(const std::string& file) {
  HEADROOM_ASSIGN(const std::string content, read_file(file, Bytes(64 * kMiB)));
  return text::read_csv(content, file);
}

Result<Scenario> scenario_of(const text::CsvTable& table, size_t row) {
  static const device::DeviceCatalogue catalogue = device::DeviceCatalogue::built_in();
  HEADROOM_ASSIGN(FitQuestion question, question_of(table, row));
  HEADROOM_ASSIGN(const device::FoundDevice found, catalogue.find_for_measurement(question.device));
  question.device = found.device.name;
  return resolve(question, found.device);
}

// Of predictions that say about the same: how probable they call it, and what is known to be true.
struct Said {
  double up_to;
  double sum = 0;
  int64_t count = 0;
  int64_t ran_out = 0;  // surely
  int64_t ran = 0;      // surely
};

class Outcomes {
 public:
  void add(double probability, bool ran_out, bool ran) {
    for (Said& said : said_) {
      if (probability > said.up_to) continue;
      said.sum += probability;
      ++said.count;
      said.ran_out += ran_out ? 1 : 0;
      said.ran += ran ? 1 : 0;
      return;
    }
  }
  [[nodiscard]] const std::array<Said, 5>& said() const { return said_; }

 private:
  std::array<Said, 5> said_{{{0.01}, {0.3}, {0.7}, {0.99}, {1}}};
};

// Each measured run on devices of other sizes. One smaller than what was allocated and the least
// context ends it; one of as much as nvidia-smi showed does not; between the two nobody knows.
TEST(OomProbabilityData, WhatIsCalledProbableIsAsOftenTrue) {
  const auto table = table_of(measurements());
  if (!table) GTEST_SKIP() << "no data: " << measurements();
  Outcomes outcomes;
  for (size_t row = 0; row < table->rows.size(); ++row) {
    if (table->at(row, "source") != "fms-acceleration") continue;
    auto scenario = scenario_of(*table, row);
    ASSERT_TRUE(scenario) << scenario.error().to_string();
    Bytes allocated;
    Bytes shown;
    for (const MeasuredFigure& figure : figures_of(*table, row)) {
      if (figure.metric == Metric::peak_allocated) allocated = figure.value;
      if (figure.metric == Metric::device_used) shown = figure.value;
    }
    ASSERT_GT(allocated, Bytes(0));
    ASSERT_GT(shown, allocated);
    const Bytes least =
        allocated + outside_allocator(*scenario->device, communicators_of(scenario->question)).low;
    for (const double times : {0.97, 0.99, 1.0, 1.005, 1.01, 1.02, 1.03, 1.05, 1.1, 1.2}) {
      scenario->offered = Bytes(static_cast<int64_t>(times * static_cast<double>(least.count)));
      const auto detail = predict_in_detail(*scenario, 0);
      ASSERT_TRUE(detail) << detail.error().to_string();
      outcomes.add(detail->prediction.oom_probability, scenario->offered < least,
                   scenario->offered >= shown);
    }
  }
  for (const Said& said : outcomes.said()) {
    ASSERT_GT(said.count, 20);
    const auto count = static_cast<double>(said.count);
    const double mean = said.sum / count;
    const double low = static_cast<double>(said.ran_out) / count;
    const double high = 1 - static_cast<double>(said.ran) / count;
    std::printf("%5lld called %.3f: true of %.3f to %.3f\n", static_cast<long long>(said.count),
                mean, low, high);
    EXPECT_GE(mean, low - 0.05) << "up to " << said.up_to;
    EXPECT_LE(mean, high + 0.05) << "up to " << said.up_to;
  }
  // As docs/measurements/2026-11-22-fit-oom says.
  EXPECT_EQ(outcomes.said().front().ran_out, 0);
  EXPECT_EQ(outcomes.said().back().ran, 0);
}

}  // namespace
}  // namespace headroom::fit
