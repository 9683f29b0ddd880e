#include "report/batch/text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "report/batch/html.h"
#include "report/batch/open_load.h"

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

TEST(BatchHtml, TheSharesOfAStepAreAllOfIt) {
  batch::BatchAnswer answer = sample();
  timing::DecodeStep step;
  step.batch = 96;
  double seconds = 1e-3;
  for (timing::KernelTime* part :
       {&step.attention, &step.matmul, &step.other, &step.quantize, &step.collectives}) {
    part->time.seconds = seconds;
    seconds *= 2;
  }
  step.host.seconds = seconds;
  answer.steps = {step};
  std::string page;
  for (const Section& section : batch_sections(answer)) page += section.body.markup();
  EXPECT_NE(page.find("quantizing inputs at batch 96: 12.7 %"), std::string::npos);
  double sum = 0;
  const std::string_view words = " at batch 96: ";
  for (size_t at = page.find(words); at != std::string::npos; at = page.find(words, at + 1)) {
    sum += std::strtod(page.c_str() + at + words.size(), nullptr);
  }
  EXPECT_NEAR(sum, 100, 0.5);
}

TEST(BatchHtml, ASectionForWhatIsKnown) {
  EXPECT_EQ(batch_sections(sample()).size(), 3U);
  batch::BatchAnswer answer = sample();
  answer.question.points_file = "<script>";
  answer.host_gap = batch::Interval{0.3, 0.3, 0.3};
  answer.replicas.push_back({});
  answer.notes = {"<b>"};
  const auto sections = batch_sections(answer);
  ASSERT_EQ(sections.size(), 5U);
  for (const Section& section : sections) {
    EXPECT_EQ(section.body.markup().find("<script>"), std::string::npos);
    EXPECT_EQ(section.body.markup().find("<b>"), std::string::npos);
  }
}

TEST(BatchText, ReplicasThatAreExpectedToGainNothingAreNamedAndNoMore) {
  batch::BatchAnswer answer = sample();
  answer.host_gap = batch::Interval{0, 0, 0.2};
  answer.host_gap_source = "predicted";
  answer.replicas.resize(2);
  answer.replicas.front().speedup_vs_single = {0.9, 1, 1.3};
  answer.replicas.back().count = 4;
  answer.replicas.back().sharing = batch::Sharing::time_slicing;
  answer.replicas.back().speedup_vs_single = {0.7, 0.8, 0.9};
  const std::string words = batch_text(answer, {});
  EXPECT_NE(words.find("\n2, mps "), std::string::npos) << words;
  EXPECT_EQ(words.find("\n4, time-slicing"), std::string::npos);
  EXPECT_NE(replicas_words(answer).find("up to 20 % of a step may be"), std::string::npos);
  EXPECT_NE(replicas_words(answer).find("No number of them is expected"), std::string::npos);
  // What could gain at best stands, once, where nothing is expected to.
  answer.replicas.push_back(answer.replicas.front());
  answer.replicas.back().count = 3;
  answer.replicas.back().speedup_vs_single.high = 1.4;
  ASSERT_EQ(replicas_shown(answer).size(), 1U);
  EXPECT_EQ(replicas_shown(answer).front()->count, 3);
  answer.replicas.back().fits = false;
  EXPECT_EQ(replicas_shown(answer).front()->count, 2);
  answer.replicas.front().speedup_vs_single.expected = 1.1;
  EXPECT_NE(replicas_words(answer).find("is expected of 4 by time-slicing, 3 by mps."),
            std::string::npos);
}

// The sample with a rate that is kept and one that is not, by a target of 100 ms.
batch::BatchAnswer with_rates() {
  batch::BatchAnswer answer = sample();
  batch::OpenLoadAnswer open;
  open.targets = {{serving::LatencyMetric::ttft, 95, 0.1}};
  open.limit = 96;
  open.highest_rate = {8, 10, 12};
  open.arrivals = "poisson";
  for (const double rate : {5.0, 11.0}) {
    batch::OpenLoadRow row;
    row.requests_per_second = rate;
    row.at_targets = {{0.01 * rate, 0.011 * rate, 0.012 * rate}};
    row.kept = rate < 10 ? batch::Kept::yes : batch::Kept::at_risk;
    row.is_kept_as_expected = rate < 10;
    open.rows.push_back(row);
  }
  answer.open_load = open;
  return answer;
}

TEST(BatchText, RatesThatAreAskedAboutComeFirst) {
  batch::BatchAnswer answer = with_rates();
  EXPECT_EQ(batch_sentence(answer),
            "points.csv: with --max-num-seqs 96 up to 10 (8 to 12) requests/s keep TTFT p95 <= 100 "
            "ms");
  EXPECT_TRUE(answers_plainly(answer));
  answer.question.open_load.rates = {5, 11};
  EXPECT_EQ(batch_sentence(answer),
            "points.csv: with --max-num-seqs 96 at 11 requests/s TTFT p95 121 (110 to 132) ms: "
            "missed, perhaps; up to 10 (8 to 12) requests/s keep TTFT p95 <= 100 ms");
  EXPECT_FALSE(answers_plainly(answer));
  answer.open_load->highest_rate = {};
  EXPECT_NE(batch_sentence(answer).find("no rate keeps TTFT p95 <= 100 ms"), std::string::npos);
}

TEST(BatchHtml, MeasuredRatesHaveASectionAndTheWordsOfTheServerStayText) {
  batch::BatchAnswer answer = with_rates();
  batch::LoadRecord record;
  record.url = "http://<b>";
  record.loads.emplace_back();
  record.loads.back().asked_requests_per_second = 5;
  record.loads.back().first_failure = "<script>";
  answer.measured_load = record;
  EXPECT_TRUE(answers_plainly(answer));
  const auto sections = batch_sections(answer);
  ASSERT_EQ(sections.size(), 5U);
  EXPECT_EQ(sections[1].id, "measured-load");
  for (const Section& section : sections) {
    EXPECT_EQ(section.body.markup().find("<script>"), std::string::npos);
    EXPECT_EQ(section.body.markup().find("<b>"), std::string::npos);
  }
  answer.measured_load->loads.back().is_void = true;
  EXPECT_FALSE(answers_plainly(answer));
}

}  // namespace
}  // namespace headroom::report
