#include "serving/load_summary.h"

#include <gtest/gtest.h>

namespace headroom::serving {
namespace {

// Two streams with a token every 0.1 s and every 0.2 s, watched from 1 s to 5 s.
LoadRun two_streams() {
  LoadRun run;
  run.concurrency = 2;
  run.window_begin = 1;
  run.window_end = 5;
  for (const double gap : {0.1, 0.2}) {
    RequestRecord request;
    request.is_initial = true;
    request.output_asked = 1000;
    for (int i = 0; i * gap < 6; ++i) request.arrived.push_back(i * gap);
    run.requests.push_back(request);
  }
  return run;
}

TEST(LoadSummary, MeansOfTheWindow) {
  const auto summary = summarise(two_streams());
  ASSERT_TRUE(summary);
  EXPECT_NEAR(summary->throughput_tokens_per_second, 15, 0.5);
  EXPECT_NEAR(summary->itl_seconds, 8.0 / 60, 1e-9);  // two streams of 4 s, 60 tokens
  EXPECT_NEAR(summary->running_mean, 2, 1e-9);
  EXPECT_NEAR(summary->itl_chunks.p50, 0.1, 1e-9);
  EXPECT_NEAR(summary->itl_chunks.p99, 0.2, 1e-9);
  EXPECT_EQ(summary->ttft.count, 0);  // those that began halfway tell none
}

// Of four values the second is the median: half of them are not above it.
TEST(LoadSummary, PercentilesAreTheNearestRank) {
  LoadRun run = two_streams();
  for (const double first : {0.1, 0.2, 0.3, 0.4}) {
    RequestRecord request;
    request.began = 2;
    request.is_finished = true;
    request.output_asked = 1;
    request.arrived = {request.began + first};
    run.requests.push_back(request);
  }
  const auto summary = summarise(run);
  ASSERT_TRUE(summary);
  ASSERT_EQ(summary->ttft.count, 4);
  EXPECT_NEAR(summary->ttft.p50, 0.2, 1e-9);
  EXPECT_NEAR(summary->ttft.p99, 0.4, 1e-9);
}

TEST(LoadSummary, SeveralTokensAChunkAreCountedByUsage) {
  LoadRun run = two_streams();
  for (RequestRecord& request : run.requests) {
    request.is_finished = true;
    request.ended = 5.95;
    request.prompt_tokens = 10;
    request.completion_tokens = static_cast<int64_t>(request.arrived.size()) * 3;
  }
  const auto summary = summarise(run);
  ASSERT_TRUE(summary);
  EXPECT_NEAR(summary->tokens_per_chunk, 3, 1e-9);
  EXPECT_NEAR(summary->throughput_tokens_per_second, 45, 1.5);
  EXPECT_NEAR(summary->itl_seconds, 8.0 / 180, 1e-9);
  EXPECT_NEAR(summary->itl_chunks.p99, 0.2, 1e-9);  // of chunks, as the peers have it
}

TEST(LoadSummary, DefinitionsOfOneRequest) {
  LoadRun run = two_streams();
  RequestRecord request;
  request.is_finished = true;
  request.output_asked = 4;
  request.input_asked = 9;
  request.began = 2;
  request.arrived = {2.5, 2.6, 2.8, 3.1};
  request.first_visible = 2.8;
  request.ended = 3.2;
  request.prompt_tokens = 10;
  request.completion_tokens = 4;
  run.requests.push_back(request);
  const auto summary = summarise(run);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->ttft.count, 1);
  EXPECT_NEAR(summary->ttft.mean, 0.5, 1e-9);
  EXPECT_NEAR(summary->first_visible.mean, 0.8, 1e-9);
  EXPECT_NEAR(summary->tpot.mean, 0.2, 1e-9);
  EXPECT_NEAR(summary->e2e.mean, 1.2, 1e-9);
  ASSERT_EQ(summary->lengths.size(), 1u);
  EXPECT_EQ(summary->lengths[0].input_tokens, 10);
  EXPECT_EQ(summary->input_asked_mean, 9);
  EXPECT_EQ(summary->ended_early, 0);
}

TEST(LoadSummary, FailuresAreCountedAndInNoMean) {
  LoadRun run = two_streams();
  const double before = summarise(run)->throughput_tokens_per_second;
  RequestRecord failed;
  failed.failure = Failure::cut;
  failed.began = 2;
  failed.arrived = {2.1, 2.2, 4.9};
  run.requests.push_back(failed);
  const auto summary = summarise(run);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->failed, 1);
  EXPECT_EQ(summary->failures[static_cast<size_t>(Failure::cut)], 1);
  EXPECT_EQ(summary->throughput_tokens_per_second, before);
  EXPECT_EQ(summary->ttft.count, 0);
}

TEST(LoadSummary, ALateGeneratorVoidsTheRun) {
  LoadRun run = two_streams();
  EXPECT_FALSE(summarise(run)->is_void);
  run.lag.mean_seconds = 0.02;  // of 0.13 between tokens
  EXPECT_TRUE(summarise(run)->is_void);
  run.lag = {.busy_share = 0.95};
  EXPECT_TRUE(summarise(run)->is_void);
}

TEST(LoadSummary, AnEmptyWindowIsAnError) {
  LoadRun run = two_streams();
  for (RequestRecord& request : run.requests) request.arrived.clear();
  EXPECT_FALSE(summarise(run));
}

}  // namespace
}  // namespace headroom::serving
