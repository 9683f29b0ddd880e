#include "formats/serving_results.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headroom::formats {
namespace {

constexpr const char* kVllm =
    R"({"date": "20260703-041939", "model_id": "m", "num_prompts": 96, "request_rate": "inf",
        "max_concurrency": 8, "duration": 28.5, "completed": 96, "request_throughput": 3.5,
        "output_throughput": 770.5, "mean_ttft_ms": 118.0, "mean_tpot_ms": 9.0, "mean_itl_ms": 9.1})";

TEST(ServingResults, OneRunOfVllm) {
  const auto results = parse_serving_results(kVllm, "run.json");
  ASSERT_TRUE(results) << results.error().to_string();
  ASSERT_EQ(results->points.size(), 1U);
  const ServingPoint& point = results->points.front();
  EXPECT_EQ(point.batch, 8);
  EXPECT_DOUBLE_EQ(point.throughput_tokens_per_second, 770.5);
  EXPECT_DOUBLE_EQ(point.itl_seconds, 0.0091);
  // 3.5 requests a second, each 118 ms and 219.1 further tokens long.
  EXPECT_NEAR(*point.running_mean, 3.5 * (0.118 + 0.009 * (770.5 / 3.5 - 1)), 1e-9);
}

// SGLang's arrival rate is without a limit as a rule, which Python writes as Infinity.
TEST(ServingResults, LinesOfSglangWithWhatWasInFlight) {
  const std::string line =
      R"({"backend": "sglang", "request_rate": Infinity, "tag": "\"Infinity\\", "max_concurrency": 16, )"
      R"("output_throughput": 957.2, "mean_itl_ms": 11.9, "mean_tpot_ms": -Infinity, )"
      R"("std_itl_ms": NaN, "concurrency": 11.8})";
  const auto results = parse_serving_results(line + "\r\n\n" + line + "\n", "sweep.jsonl");
  ASSERT_TRUE(results) << results.error().to_string();
  ASSERT_EQ(results->points.size(), 2U);
  EXPECT_EQ(results->points.back().batch, 16);
  EXPECT_DOUBLE_EQ(results->points.back().itl_seconds, 0.0119);
  EXPECT_DOUBLE_EQ(*results->points.back().running_mean, 11.8);
}

// Speculative decoding: a gap is between chunks of several tokens.
TEST(ServingResults, AGapOfSeveralTokensIsNoTimeBetweenTokens) {
  const auto results = parse_serving_results(
      R"({"max_concurrency": 4, "output_throughput": 400, "mean_itl_ms": 24, "mean_tpot_ms": 9})",
      "run.json");
  ASSERT_TRUE(results) << results.error().to_string();
  EXPECT_DOUBLE_EQ(results->points.front().itl_seconds, 0.009);
}

TEST(ServingResults, AiperfsProfileButNotItsWarmUp) {
  const auto results = parse_serving_results(
      R"({"aiperf_version": "0.10.0",
          "request_throughput": {"unit": "requests/sec", "avg": 3.5},
          "request_latency": {"unit": "ms", "avg": 2000.0, "count": 96},
          "inter_token_latency": {"unit": "ms", "avg": 9.0},
          "output_token_throughput": {"unit": "tokens/sec", "avg": 770.0},
          "input_config": {"phases": [
             {"name": "warmup", "exclude_from_results": true, "concurrency": 4},
             {"name": "profiling", "concurrency": 8}]}})",
      "profile_export_aiperf.json");
  ASSERT_TRUE(results) << results.error().to_string();
  EXPECT_EQ(results->points.front().batch, 8);
  EXPECT_DOUBLE_EQ(*results->points.front().running_mean, 7.0);
  EXPECT_DOUBLE_EQ(results->points.front().itl_seconds, 0.009);
}

TEST(ServingResults, GuidellmsRunsOfBothVersionsWithoutItsRates) {
  const std::string metrics =
      R"("metrics": {"output_tokens_per_second": {"successful": {"mean": 500.0}},
                     "inter_token_latency_ms": {"successful": {"mean": 8.0}},
                     "request_concurrency": {"successful": {"mean": 3.9}}})";
  const std::string text =
      R"({"benchmarks": [
          {"args": {"strategy": {"type_": "concurrent", "streams": 4}}, )" +
      metrics + R"(},
          {"config": {"strategy": {"type_": "concurrent", "max_concurrency": 8}}, )" +
      metrics + R"(}, {"config": {"strategy": {"type_": "synchronous"}}, )" + metrics +
      R"(}, {"config": {"strategy": {"type_": "constant", "rate": 5.0, "max_concurrency": 512}}, )" +
      metrics + "}]}";
  const auto results = parse_serving_results(text, "benchmarks.json");
  ASSERT_TRUE(results) << results.error().to_string();
  ASSERT_EQ(results->points.size(), 3U);
  EXPECT_EQ(results->points[0].batch, 4);
  EXPECT_EQ(results->points[1].batch, 8);
  EXPECT_EQ(results->points[2].batch, 1);
  EXPECT_DOUBLE_EQ(*results->points[0].running_mean, 3.9);
  EXPECT_DOUBLE_EQ(*results->points[2].running_mean, 1);  // never beyond the limit
  ASSERT_EQ(results->left_out.size(), 1U);
  EXPECT_NE(results->left_out.front().find("run 4"), std::string::npos);
}

TEST(ServingResults, WhatMakesNoPointIsAnErrorThatSaysWhy) {
  const auto words_of = [](const char* text) {
    const auto results = parse_serving_results(text, "x.json");
    return results ? std::string() : results.error().to_string();
  };
  EXPECT_NE(words_of(R"({"output_throughput": 5, "mean_itl_ms": 3})").find("arrival rate"),
            std::string::npos);
  EXPECT_NE(words_of(R"({"output_throughput": 5, "max_concurrency": 3})").find("between tokens"),
            std::string::npos);
  EXPECT_NE(words_of(R"({"output_throughput": -5, "max_concurrency": 3, "mean_itl_ms": 3})")
                .find("throughput"),
            std::string::npos);
  EXPECT_NE(words_of(R"({"output_throughput": 5, "max_concurrency": 1e30, "mean_itl_ms": 3})")
                .find("65,536"),
            std::string::npos);
  EXPECT_NE(words_of(R"({"traceEvents": []})").find("load generator"), std::string::npos);
  EXPECT_NE(words_of("batch,itl_ms\n1,2\n").find("throughput_tokens_per_second"),
            std::string::npos);
  EXPECT_FALSE(words_of("").empty());
  EXPECT_FALSE(words_of("{").empty());
  EXPECT_FALSE(words_of(R"({"benchmarks": [1, null, []]})").empty());
}

// The rate decided how many ran, not the limit: 4 of 256.
TEST(ServingResults, ARateThatNeverReachesItsLimitIsNoBatch) {
  const auto run = [](const char* rate, int limit) {
    return R"({"request_rate": )" + std::string(rate) + R"(, "max_concurrency": )" +
           std::to_string(limit) +
           R"(, "output_throughput": 352, "request_throughput": 1.3, "mean_ttft_ms": 80,)"
           R"( "mean_tpot_ms": 11.3})";
  };
  EXPECT_FALSE(parse_serving_results(run("4.0", 256), "x.json"));
  EXPECT_TRUE(parse_serving_results(run("4.0", 4), "x.json"));
  EXPECT_TRUE(parse_serving_results(run("\"inf\"", 256), "x.json"));
  EXPECT_TRUE(parse_serving_results(run("Infinity", 256), "x.json"));
}

TEST(ServingResults, SweepsOfVllmAreListsWithAWarmUp) {
  const std::string run =
      R"("max_concurrency": 8, "output_throughput": 770.5, "mean_tpot_ms": 9.0})";
  const auto results = parse_serving_results(
      "\xEF\xBB\xBF[{\"run_number\": -1, " + run + ", {\"run_number\": 0, " + run + "]", "s.json");
  ASSERT_TRUE(results) << results.error().to_string();
  EXPECT_EQ(results->points.size(), 1U);
  ASSERT_EQ(results->left_out.size(), 1U);
  EXPECT_NE(results->left_out[0].find("warm-up"), std::string::npos);
}

TEST(ServingResults, ACutLineIsNamedAndTheRestIsKept) {
  const std::string line =
      R"({"max_concurrency": 8, "output_throughput": 770.5, "mean_tpot_ms": 9.0})";
  const auto results =
      parse_serving_results(line + "\n" + line.substr(0, 30) + "\n" + line + "\n", "s.jsonl");
  ASSERT_TRUE(results) << results.error().to_string();
  EXPECT_EQ(results->points.size(), 2U);
  EXPECT_TRUE(results->is_partial);
  ASSERT_EQ(results->left_out.size(), 1U);
  EXPECT_NE(results->left_out[0].find("line 2"), std::string::npos);
}

TEST(ServingResults, AFolderIsReadWholeAndWhatIsNoneIsSaid) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::path(testing::TempDir()) / ("headroom_results_" + std::to_string(getpid()));
  fs::create_directories(folder / "c16");
  const auto write = [&](const char* name, std::string_view text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  write("b.json", kVllm);
  write("c16/profile_export_aiperf.json",
        R"({"output_token_throughput": {"avg": 900}, "inter_token_latency": {"avg": 12},
            "input_config": {"loadgen": {"concurrency": 16}}})");
  write("points.csv", "batch,throughput_tokens_per_second,itl_ms\n1,120,8\n");
  write("cut.json", R"({"output_throughput": 5, )");
  write("other.json", R"({"a": 1})");
  write("other.csv", "a,b\n1,2\n");
  write("readme.txt", "{");
  const auto results = read_serving_results(folder.string());
  fs::remove_all(folder);
  ASSERT_TRUE(results) << results.error().to_string();
  ASSERT_EQ(results->points.size(), 3U);
  EXPECT_EQ(results->points[0].batch, 8);
  EXPECT_EQ(results->points[1].batch, 16);
  EXPECT_EQ(results->points[2].batch, 1);
  ASSERT_EQ(results->left_out.size(), 2U);
  EXPECT_NE(results->left_out[0].find("cut.json"), std::string::npos);
  EXPECT_EQ(results->left_out[1].rfind("2 of 6 files", 0), 0U) << results->left_out[1];
}

}  // namespace
}  // namespace headroom::formats
