// Megatron-LM's own recordings of its memory, row by row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/tools/room_test.h"

#include "fit/fit.h"

namespace headroom::fit {
namespace {

std::string measurements() { return tests::data_dir() / "peak_memory/measured.csv"; }

TEST(MegatronData, ModelsOfTransformerEngineAreMetOnEveryGpu) {
  if (!std::filesystem::exists(measurements())) GTEST_SKIP() << "no data: " << measurements();
  AgainstQuestion question;
  question.file = measurements();
  const auto answer = answer_against(question);
  ASSERT_TRUE(answer) << answer.error().to_string();
  for (const AgainstSummary& line : answer->summary) {
    if (line.source != "megatron-golden") continue;
    EXPECT_GE(line.supported, 182) << line.metric;
    if (line.metric == "peak_allocated") {
      EXPECT_LE(*line.median_pct, 0.5);
      EXPECT_LE(*line.p90_pct, 1.5);
    } else {
      EXPECT_LE(*line.median_pct, 0.2);
      EXPECT_LE(*line.p90_pct, 0.8);
    }
  }
}

}  // namespace
}  // namespace headroom::fit
