#include "report/batch_text.h"

#include <gtest/gtest.h>

#include "report/batch_html.h"

namespace headroom::report {
namespace {

batch::BatchAnswer sample() {
  batch::BatchAnswer answer;
  answer.question.points_file = "points.csv";
  for (const int64_t batch : {1, 96, 512}) {
    batch::CurveRow row;
    row.point.batch = batch;
    row.point.running = static_cast<double>(batch);
    const double rate = 9000.0 * static_cast<double>(batch) / (30 + static_cast<double>(batch));
    row.point.throughput_tokens_per_second = {rate, rate, rate};
    row.point.itl_seconds = {0.01, 0.01, 0.01};
    row.point.kv_share = static_cast<double>(batch) / 600;
    answer.curve.push_back(row);
  }
  answer.largest = 2;
  answer.chosen = 1;
  answer.advice = {.batch = 96, .low = 64, .high = 96, .bound = batch::Bound::latency};
  answer.itl_target_seconds = 0.012;
  answer.kv.share = 0.16;
  return answer;
}

TEST(BatchText, TheFirstLineIsTheAnswer) {
  EXPECT_EQ(
      batch_sentence(sample()),
      "points.csv: B_opt 96 (64 to 96): 6,857 tokens/s, 10.0 ms between tokens, 81 % of batch "
      "512, with 16 % of the KV cache");
}

TEST(BatchText, WithoutAPlainAnswerItSaysWhatThereIs) {
  batch::BatchAnswer answer = sample();
  answer.chosen.reset();
  answer.advice = {};
  EXPECT_EQ(batch_sentence(answer),
            "points.csv: no batch meets the target; batch 1 has 10.0 ms between tokens");
  answer.curve.clear();
  EXPECT_EQ(batch_sentence(answer), "points.csv: the model does not fit");
}

TEST(BatchHtml, ASectionForWhatIsKnown) {
  EXPECT_EQ(batch_sections(sample()).size(), 2U);
  batch::BatchAnswer answer = sample();
  answer.question.points_file = "<script>";
  answer.host_gap = 0.3;
  answer.replicas.push_back({});
  answer.notes = {"<b>"};
  const auto sections = batch_sections(answer);
  ASSERT_EQ(sections.size(), 4U);
  for (const Section& section : sections) {
    EXPECT_EQ(section.body.markup().find("<script>"), std::string::npos);
    EXPECT_EQ(section.body.markup().find("<b>"), std::string::npos);
  }
}

}  // namespace
}  // namespace headroom::report
