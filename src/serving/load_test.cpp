// The load generator against a server of a known law. Bounds are wide: what is tested is that the
// figures are right, not that this machine is quiet.
#include "serving/load.h"

#include <gtest/gtest.h>

#include <cmath>

#include "serving/load_summary.h"
#include "serving/testing/test_server.h"

namespace headroom::serving {
namespace {

using testing::TestServer;
using testing::TestServerOptions;

std::unique_ptr<HttpStreams> streams() {
  auto made = HttpStreams::make();
  HEADROOM_CHECK(made.has_value(), "streams");
  return *std::move(made);
}

Result<Server> probed(HttpStreams& streams, const TestServer& server, std::string key = {}) {
  ServerQuestion question;
  question.endpoint = *parse_endpoint(server.url());
  question.input_tokens = 40;
  question.api_key = std::move(key);
  return probe_server(streams, question);
}

LoadPlan short_plan() {
  LoadPlan plan;
  plan.lengths = {{.input_tokens = 30, .output_tokens = 20},
                  {.input_tokens = 50, .output_tokens = 60}};
  plan.start_seconds = 10;
  plan.least_seconds = 1;
  plan.most_seconds = 2;
  plan.stall_seconds = 1;
  plan.precision = 0.02;
  return plan;
}

TEST(Load, MeasuresTheLawOfTheServer) {
  // 20 ms + 1 ms n: 28 ms with eight in flight, and little for prompts.
  const auto server = TestServer::start({.base_ms = 20, .per_sequence_ms = 1, .prefill_us = 0});
  const auto http = streams();
  const auto known = probed(*http, *server);
  ASSERT_TRUE(known) << known.error().to_string();
  EXPECT_EQ(known->model, "test");
  EXPECT_EQ(known->api, Api::completions);
  EXPECT_TRUE(known->has_metrics);
  LoadPlan plan = short_plan();
  plan.least_seconds = plan.most_seconds = 3;  // longer than any of its requests
  const auto run = LoadGenerator(*http, *known, plan).measure(8);
  ASSERT_TRUE(run) << run.error().to_string();
  const auto summary = summarise(*run);
  ASSERT_TRUE(summary) << summary.error().to_string();
  EXPECT_EQ(summary->failed, 0);
  EXPECT_GT(summary->finished, 4);
  // Slots between two requests wait for the next step, so a little less than all are decoding.
  EXPECT_GT(summary->running_mean, 6);
  EXPECT_LE(summary->running_mean, 8.01);
  EXPECT_GT(summary->itl_seconds, 0.0255);
  EXPECT_LT(summary->itl_seconds, 0.06);
  EXPECT_GT(summary->ttft.count, 0);
  ASSERT_FALSE(summary->lengths.empty());
  EXPECT_NEAR(static_cast<double>(summary->lengths[0].input_tokens),
              summary->lengths[0].output_tokens == 20 ? 30 : 50, 1);
  EXPECT_TRUE(summary->kv_share && *summary->kv_share > 0);
}

TEST(Load, GoesOnWithTheStreamsThatItHas) {
  const auto server = TestServer::start({.base_ms = 10, .per_sequence_ms = 2, .prefill_us = 0});
  const auto http = streams();
  const auto known = probed(*http, *server);
  ASSERT_TRUE(known) << known.error().to_string();
  LoadPlan plan = short_plan();
  plan.lengths = {{.input_tokens = 20, .output_tokens = 2000}};  // none ends meanwhile
  LoadGenerator generator(*http, *known, plan);
  std::vector<double> itls;
  std::vector<int64_t> sent;
  for (const int64_t batch : {16, 4, 8}) {
    const auto run = generator.measure(batch);
    ASSERT_TRUE(run) << run.error().to_string();
    const auto summary = summarise(*run);
    ASSERT_TRUE(summary);
    EXPECT_NEAR(summary->running_mean, static_cast<double>(batch), 0.5);
    itls.push_back(summary->itl_seconds);
    sent.push_back(summary->requests);
  }
  // 42, 18 and 26 ms; and one or two of the first sixteen began near their end.
  EXPECT_GT(itls[0], 1.3 * itls[2]);
  EXPECT_GT(itls[2], 1.2 * itls[1]);
  EXPECT_GE(sent[0], 16);
  EXPECT_LE(sent[1], 2);
  EXPECT_GE(sent[2], 4);
  EXPECT_LE(sent[2], 6);
}

TEST(Load, CountsTokensByUsageWhereAChunkHasSeveral) {
  const auto server =
      TestServer::start({.base_ms = 10, .per_sequence_ms = 0, .tokens_per_chunk = 4});
  const auto http = streams();
  const auto known = probed(*http, *server);
  ASSERT_TRUE(known) << known.error().to_string();
  const auto run = LoadGenerator(*http, *known, short_plan()).measure(4);
  ASSERT_TRUE(run) << run.error().to_string();
  const auto summary = summarise(*run);
  ASSERT_TRUE(summary);
  EXPECT_NEAR(summary->tokens_per_chunk, 4, 0.2);
  EXPECT_GT(summary->itl_seconds, 0.009);
  EXPECT_LT(summary->itl_seconds, 0.03);
  EXPECT_GT(summary->itl_chunks.p50, 0.035);  // what a client that counts chunks would say
}

TEST(Load, TakesAChatsPathAndDoesWithoutExtensions) {
  const auto server = TestServer::start(
      {.has_metrics = false, .has_completions = false, .takes_ignore_eos = false});
  const auto http = streams();
  const auto known = probed(*http, *server);
  ASSERT_TRUE(known) << known.error().to_string();
  EXPECT_EQ(known->api, Api::chat);
  EXPECT_FALSE(known->ignores_eos);
  EXPECT_FALSE(known->has_metrics);
  EXPECT_NEAR(known->prompt_law.base, 7, 1e-6);  // the template
}

TEST(Load, FailuresAreKeptApart) {
  const auto server = TestServer::start({.base_ms = 5,
                                         .refuse_every = 11,
                                         .error_every = 13,
                                         .cut_every = 17,
                                         .malformed_every = 19,
                                         .stall_every = 23,
                                         .absurd_metrics = true});
  const auto http = streams();
  const auto known = probed(*http, *server);
  ASSERT_TRUE(known) << known.error().to_string();
  LoadPlan plan = short_plan();
  plan.least_seconds = 2.5;
  plan.most_seconds = 3;
  const auto run = LoadGenerator(*http, *known, plan).measure(16);
  ASSERT_TRUE(run) << run.error().to_string();
  const auto summary = summarise(*run);
  ASSERT_TRUE(summary);
  for (const Failure failure :
       {Failure::status, Failure::server, Failure::cut, Failure::malformed, Failure::stall}) {
    EXPECT_GT(summary->failures[static_cast<size_t>(failure)], 0) << name_of(failure);
  }
  EXPECT_GT(summary->finished, summary->failed);
  EXPECT_FALSE(summary->kv_share);
}

void expect_unavailable(const TestServerOptions& options, std::string_view words) {
  const auto server = TestServer::start(options);
  const auto http = streams();
  const auto known = probed(*http, *server);
  ASSERT_FALSE(known);
  EXPECT_EQ(known.error().code, ErrorCode::unavailable);
  EXPECT_NE(known.error().to_string().find(words), std::string::npos) << known.error().to_string();
}

TEST(Load, BadServersGiveClearErrors) {
  expect_unavailable({.api_key = "right"}, "HEADROOM_API_KEY");
  expect_unavailable({.redirects = true}, "redirects elsewhere");
  expect_unavailable({.has_usage = false}, "no usage");
  expect_unavailable({.good = 0, .refuse_every = 1}, "overloaded");
  expect_unavailable({.good = 0, .error_every = 1}, "injected");
  expect_unavailable({.good = 0, .cut_every = 1}, "ended before");
}

TEST(Load, TheKeyOpensAServer) {
  const auto server = TestServer::start({.api_key = "right"});
  const auto http = streams();
  EXPECT_TRUE(probed(*http, *server, "right"));
}

TEST(Load, AServerThatDiesEndsTheRun) {
  const auto server = TestServer::start({.base_ms = 5, .die_after = 20});
  const auto http = streams();
  const auto known = probed(*http, *server);
  ASSERT_TRUE(known) << known.error().to_string();
  const auto run = LoadGenerator(*http, *known, short_plan()).measure(8);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::unavailable);
  EXPECT_NE(run.error().message.find("requests failed"), std::string::npos);
}

TEST(Load, NoServerAtAll) {
  const auto http = streams();
  ServerQuestion question;
  question.endpoint = *parse_endpoint("http://127.0.0.1:1");
  const auto known = probe_server(*http, question);
  ASSERT_FALSE(known);
  EXPECT_NE(known.error().message.find("no server answers"), std::string::npos);
}

}  // namespace
}  // namespace headroom::serving
