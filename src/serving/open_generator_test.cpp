// Requests at their times against a server of a known law; and summaries of runs made by hand. No
// test depends on how quiet the machine is: what is late is asserted to be told, not to be little.
#include "serving/open_generator.h"

#include <gtest/gtest.h>

#include "serving/testing/test_server.h"

namespace headroom::serving {
namespace {

using testing::TestServer;

// Of requests with these times of arrival, the second and third wanted.
OpenLoadRun three_requests() {
  OpenLoadRun run;
  run.from = 1;
  run.to = 3;
  run.window_end = 3;
  for (int i = 0; i < 3; ++i) {
    SentRequest sent;
    sent.scheduled = i;
    sent.is_sent = true;
    sent.record.began = i + 0.01;
    sent.record.arrived = {i + 0.2, i + 0.3, i + 0.5};
    sent.record.ended = i + 0.5;
    sent.record.is_finished = true;
    sent.record.prompt_tokens = 7;
    sent.record.completion_tokens = 3;
    run.requests.push_back(sent);
  }
  return run;
}

TEST(OpenGenerator, LatenciesCountFromWhenARequestWasToBeSent) {
  const auto load = summarise(three_requests(), {});
  ASSERT_TRUE(load) << load.error().to_string();
  EXPECT_NEAR(load->summary.of(LatencyMetric::ttft).p50, 0.2, 1e-9);
  EXPECT_NEAR(load->summary.of(LatencyMetric::tpot).p50, 0.15, 1e-9);
  EXPECT_NEAR(load->summary.of(LatencyMetric::e2e).p50, 0.5, 1e-9);
  EXPECT_EQ(load->summary.of(LatencyMetric::itl).count, 4);
  EXPECT_NEAR(load->send_lag.mean, 0.01, 1e-9);
  EXPECT_EQ(load->sent, 3);
  EXPECT_EQ(load->input_tokens_mean, 7);
  EXPECT_FALSE(load->is_void);
}

TEST(OpenGenerator, ARunOfALateGeneratorIsVoid) {
  OpenLoadRun run = three_requests();
  run.requests[2].record.began += 0.1;
  EXPECT_TRUE(summarise(run, {})->is_void);
  run = three_requests();
  run.lag.mean_seconds = 0.02;
  EXPECT_TRUE(summarise(run, {})->is_void);
  run = three_requests();
  run.lag.busy_share = 0.95;
  EXPECT_TRUE(summarise(run, {})->is_void);
}

// Answers that come whole have no time between tokens to be late in.
TEST(OpenGenerator, AnswersOfOnePieceMakeNoRunVoid) {
  OpenLoadRun run = three_requests();
  for (SentRequest& sent : run.requests) sent.record.arrived.resize(1);
  run.lag.mean_seconds = 1e-6;
  const auto load = summarise(run, {});
  ASSERT_TRUE(load) << load.error().to_string();
  EXPECT_EQ(load->summary.of(LatencyMetric::itl).count, 0);
  EXPECT_FALSE(load->is_void);
}

TEST(OpenGenerator, FailuresAreCountedAndInNoFigure) {
  OpenLoadRun run = three_requests();
  run.requests[1].record.is_finished = false;
  run.requests[1].record.failure = Failure::cut;
  run.first_failure = "cut";
  const OpenLoadGoal goal{{{LatencyMetric::ttft, 95, 1}}, {}};
  const auto load = summarise(run, goal);
  ASSERT_TRUE(load);
  EXPECT_EQ(load->failed, 1);
  EXPECT_EQ(load->failures[static_cast<size_t>(Failure::cut)], 1);
  EXPECT_EQ(load->summary.unanswered, 1);
  EXPECT_EQ(load->summary.of(LatencyMetric::ttft).count, 1);
  EXPECT_NEAR(load->summary.attained, 0.5, 1e-9);
  run.requests[2].record.is_finished = false;
  const auto none = summarise(run, goal);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("cut"), std::string::npos);
}

struct Measured {
  OpenLoadRun run;
  std::vector<testing::ServedRequest> served;
};

Measured measured(const testing::TestServerOptions& options, OpenLoadPlan plan) {
  const auto server = TestServer::start(options);
  auto streams = *HttpStreams::make();
  const auto known = probe_server(
      *streams, {.endpoint = *parse_endpoint(server->url()), .model = {}, .api_key = {}});
  HEADROOM_CHECK(known.has_value(), "a server");
  Measured result;
  result.run = run_open_load(*streams, *known, plan);
  streams.reset();
  server->stop();
  result.served = server->records();
  return result;
}

OpenLoadPlan short_plan() {
  OpenLoadPlan plan;
  for (int i = 0; i < 40; ++i) plan.arrivals.requests.push_back({0.02 * i, 30, 4});
  plan.from = 5;
  plan.to = 30;
  plan.drain_seconds = 20;
  return plan;
}

TEST(OpenGenerator, SendsEachRequestOnceAndNoneBeforeItsTime) {
  const Measured done = measured({.base_ms = 5, .per_sequence_ms = 0}, short_plan());
  for (size_t i = 5; i < 30; ++i) {
    const SentRequest& sent = done.run.requests[i];
    ASSERT_TRUE(sent.is_sent);
    EXPECT_GE(sent.record.began, sent.scheduled);
    EXPECT_TRUE(sent.record.is_finished);
    EXPECT_EQ(sent.record.completion_tokens, 4);
    EXPECT_GE(sent.record.arrived.front(), sent.record.began);
  }
  const auto load = summarise(done.run, {});
  ASSERT_TRUE(load);
  EXPECT_EQ(load->summary.requests, 25);
  EXPECT_EQ(load->failed, 0);
  EXPECT_GE(load->summary.of(LatencyMetric::ttft).p50, 0.005 - 1e-3);  // a step, at least
}

TEST(OpenGenerator, AServerThatHangsIsLeftInTime) {
  OpenLoadPlan plan = short_plan();
  plan.drain_seconds = 0.5;
  const Measured done = measured({.base_ms = 5, .stall_every = 1}, plan);
  EXPECT_FALSE(summarise(done.run, {}));
  EXPECT_FALSE(done.run.requests[10].record.is_finished);
}

}  // namespace
}  // namespace headroom::serving
