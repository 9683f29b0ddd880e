#include "serving/server_metrics.h"

#include <gtest/gtest.h>

namespace headroom::serving {
namespace {

TEST(ServerMetrics, VllmsNamesAcrossEngines) {
  const ServerMetrics metrics = parse_metrics(
      "# HELP vllm:num_requests_running Number\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"a } \\\" b\"} 12.0\n"
      "vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 4.0 1700000000\n"
      "vllm:num_requests_waiting 3\r\n"
      "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"
      "vllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n"
      "vllm:num_preemptions_total 1e2\n");
  EXPECT_EQ(metrics.running, 16);
  EXPECT_EQ(metrics.waiting, 3);
  EXPECT_EQ(metrics.kv_share, 0.5);
  EXPECT_EQ(metrics.preemptions, 100);
}

TEST(ServerMetrics, CountersAndTheHistogramOfTimesBetweenTokens) {
  const ServerMetrics metrics = parse_metrics(
      "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 3\n"
      "vllm:prompt_tokens_total 1000\nvllm:generation_tokens_total 2000\n"
      "vllm:request_success_total{finished_reason=\"stop\"} 7\n"
      "vllm:request_success_total{finished_reason=\"length\"} 3\n"
      "vllm:inter_token_latency_seconds_bucket{le=\"0.1\"} 1990\n"
      "vllm:inter_token_latency_seconds_sum 40.5\nvllm:inter_token_latency_seconds_count 1990\n"
      "vllm:time_per_output_token_seconds_sum 40.5\n"
      "vllm:time_per_output_token_seconds_count 1990\n");
  EXPECT_EQ(metrics.engines, 2);
  EXPECT_EQ(metrics.prompt_tokens, 1000);
  EXPECT_EQ(metrics.output_tokens, 2000);
  EXPECT_EQ(metrics.answered, 10);
  EXPECT_EQ(metrics.itl_seconds, 40.5) << "the old name and the new one are one histogram";
  EXPECT_EQ(metrics.itl_count, 1990);
}

TEST(ServerMetrics, TheFormerNameWhereThereIsNoOther) {
  const ServerMetrics metrics = parse_metrics(
      "vllm:time_per_output_token_seconds_sum{engine=\"0\"} 4\n"
      "vllm:time_per_output_token_seconds_sum{engine=\"1\"} 6\n"
      "vllm:time_per_output_token_seconds_count 100\n");
  EXPECT_EQ(metrics.itl_seconds, 10);
  EXPECT_EQ(metrics.itl_count, 100);
}

TEST(ServerMetrics, AbsurdValuesAreNone) {
  const ServerMetrics metrics = parse_metrics(
      "vllm:num_requests_running -1\nvllm:num_requests_waiting NaN\n"
      "vllm:kv_cache_usage_perc 1e300\nvllm:num_preemptions_total{a=\"b 3\nsglang:token_usage");
  EXPECT_FALSE(metrics.running || metrics.waiting || metrics.kv_share || metrics.preemptions);
}

TEST(ServerMetrics, HitsOfTheCacheOfPrefixes) {
  const ServerMetrics vllm = parse_metrics(
      "vllm:prefix_cache_queries_total{a=\"b\"} 400\nvllm:prefix_cache_hits_total 100\n");
  EXPECT_EQ(vllm.prefix_queries, 400);
  EXPECT_EQ(vllm.prefix_hits, 100);
  const ServerMetrics sglang =
      parse_metrics("sglang:prompt_tokens_total 50\nsglang:cached_tokens_total 10\n");
  EXPECT_EQ(sglang.prefix_queries, 50);
  EXPECT_FALSE(parse_metrics("sglang:prompt_tokens_total 50\n").prefix_queries);
}

}  // namespace
}  // namespace headroom::serving
