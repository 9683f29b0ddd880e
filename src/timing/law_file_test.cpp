#include "timing/law_file.h"

#include <gtest/gtest.h>

namespace headroom::timing {
namespace {

constexpr const char* kTable =
    R"({"features": ["k"], "knots": [[0, 1, 2]], "values": [0.1, 0.2, 0.3]})";
constexpr const char* kErrors =
    R"({"large": {"rows": 10, "median_error_pct": 5, "half_width_log": 0.2},
        "small": {"rows": 0, "median_error_pct": null, "half_width_log": 0.4}})";

std::string file_with(const std::string& table, const std::string& more = "",
                      const std::string& kind = "gemm") {
  return R"({"schema": "headroom.timing/1", "sources": {"me": "my bench"}, "laws": [{"class": ")" +
         kind + R"(", "sources": ["me"], "start_seconds": 1e-6, "intercept": 0.5, "errors": )" +
         kErrors + R"(, "tables": [)" + table + "]" + more + "}]}";
}

Result<LawFile> read(const std::string& text) {
  const auto json = text::parse_json(text, "t.json");
  if (!json) return json.error();
  return read_law_file(text::JsonView(*json, "t.json"));
}

TEST(LawFile, ReadsALaw) {
  const auto file = read(file_with(
      kTable, R"(, "correction": {"features": ["k"], "center": [1], "scale": [2], "offset_sd": 0.3,
                "local_sd": 0.2, "noise_sd": 0.05, "half_width_log": {"large": 0.1, "small": 0.2}})"));
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_EQ(file->laws.size(), 1U);
  const Law& law = file->laws[0];
  EXPECT_EQ(law.kind, OperatorClass::gemm);
  EXPECT_EQ(law.start_seconds, 1e-6);
  EXPECT_EQ(law.tables[0].values[2], 0.3);
  EXPECT_EQ(law.large.rows, 10);
  EXPECT_EQ(law.small.half_width_log, 0.4);
  EXPECT_TRUE(law.can_correct);
  EXPECT_EQ(law.correction.scale[0], 2);
  EXPECT_EQ(file->sources[0].second, "my bench");
}

TEST(LawFile, KnowsTheArithmeticOfItsTables) {
  const auto file = read(file_with(kTable, R"(, "rates": ["bf16", "fp8"])"));
  ASSERT_TRUE(file) << file.error().to_string();
  const auto again = read(law_file_json(*file).dump());
  ASSERT_TRUE(again);
  for (const Law& law : {file->laws[0], again->laws[0]}) {
    EXPECT_TRUE(law.knows(device::Rate::fp16));  // as bf16
    EXPECT_TRUE(law.knows(device::Rate::fp8));
    EXPECT_FALSE(law.knows(device::Rate::int8));
  }
  EXPECT_TRUE(read(file_with(kTable))->laws[0].knows(device::Rate::int8));  // nothing is said
  EXPECT_FALSE(read(file_with(kTable, R"(, "rates": ["bf17"])")));
}

TEST(LawFile, ReadsWhatAStepAdds) {
  const auto file = read(R"({"schema": "headroom.timing/1", "laws": [], "steps": [
      {"name": "eager-training", "source": "runs", "devices": ["t4-16gb"], "ratio": 1.5,
       "half_width_log": 0.1, "half_width_log_elsewhere": 0.4, "median_error_pct": 9}]})");
  ASSERT_TRUE(file) << file.error().to_string();
  const auto again = read(law_file_json(*file).dump());
  ASSERT_TRUE(again);
  ASSERT_EQ(again->steps.size(), 1U);
  EXPECT_EQ(again->steps[0].devices, std::vector<std::string>{"t4-16gb"});
  EXPECT_EQ(again->steps[0].ratio, 1.5);
  EXPECT_EQ(again->steps[0].half_width_log_elsewhere, 0.4);
  EXPECT_FALSE(read(R"({"schema": "headroom.timing/1", "laws": [], "steps": [
      {"name": "x", "source": "", "devices": [], "ratio": 0, "half_width_log": 0,
       "half_width_log_elsewhere": 0, "median_error_pct": 0}]})"));
}

TEST(LawFile, ReadsWhichWholeStepsTaught) {
  const auto with = [&](const std::string& more) {
    return read(R"({"schema": "headroom.timing/1", "laws": [], "steps": [
      {"name": "megatron-training", "source": "runs", "devices": ["t4-16gb"], "ratio": 1.5,
       "half_width_log": 0.1, "half_width_log_elsewhere": 0.4, "median_error_pct": 9)" +
                more + "}]}");
  };
  const auto file = with(R"(, "ratios": [{"device": "a10-24gb", "ratio": 2}],
      "whole_steps": {"learned": 7, "aside": 5, "inside": 4})");
  ASSERT_TRUE(file) << file.error().to_string();
  const auto again = read(law_file_json(*file).dump());
  ASSERT_TRUE(again);
  for (const InStep& step : {file->steps[0], again->steps[0]}) {
    ASSERT_TRUE(step.whole_steps);
    EXPECT_EQ(step.whole_steps->learned, 7);
    EXPECT_EQ(step.whole_steps->aside, 5);
    EXPECT_EQ(step.whole_steps->inside, 4);
    EXPECT_EQ(step.half_width_on("t4-16gb"), 0.1);
    EXPECT_EQ(step.half_width_on("a10-24gb"), 0.4);
    EXPECT_EQ(step.ratio_on("t4-16gb"), 1.5);
    EXPECT_EQ(step.ratio_on("a10-24gb"), 2);
  }
  EXPECT_FALSE(with("")->steps[0].whole_steps);
  EXPECT_FALSE(with(R"(, "whole_steps": {"learned": 7, "aside": 5, "inside": 6})"));
  EXPECT_FALSE(with(R"(, "whole_steps": {"learned": 0, "aside": 5, "inside": 4})"));
}

TEST(LawFile, ReadsWhichEnginesAreFormer) {
  const std::string costs =
      R"("host_base_seconds": 1e-3, "host_seconds_per_sequence": 0,
         "sampling_seconds_per_logit": 0, "half_width_log": 0, "median_error_pct": 9)";
  const auto with = [&](const std::string& more) {
    return read(
        R"({"schema": "headroom.timing/1", "laws": [], "engines": [{"name": "x", "source": "", )" +
        costs + more + "}]}");
  };
  const auto file = with(R"(, "serves": "vllm", "before": "0.8", "least_step_seconds": 0.004,
      "step_half_width_log": {"dense": 0.1, "experts": 0.2, "devices": ["t4-16gb"],
      "weights": ["fp8"]})");
  ASSERT_TRUE(file) << file.error().to_string();
  const auto again = read(law_file_json(*file).dump());
  ASSERT_TRUE(again);
  for (const Engine& engine : {file->engines[0], again->engines[0]}) {
    EXPECT_TRUE(engine.is_former());
    EXPECT_EQ(engine.serves + " " + engine.before, "vllm 0.8");
    EXPECT_EQ(engine.least_step_seconds, 0.004);
    EXPECT_EQ(engine.step_half_width->experts_log, 0.2);
    EXPECT_EQ(engine.step_half_width->devices, std::vector<std::string>{"t4-16gb"});
    EXPECT_TRUE(engine.step_half_width->judges("t4-16gb", device::Rate::fp8));
    EXPECT_FALSE(engine.step_half_width->judges("t4-16gb", device::Rate::bf16));
    EXPECT_FALSE(engine.step_half_width->judges("a10-24gb", device::Rate::fp8));
  }
  EXPECT_FALSE(with("")->engines[0].is_former());
  EXPECT_EQ(with(R"(, "serves": "vllm")").error().where, "t.json#/engines/0/before");
}

// A bad file, and what its error must name.
struct BadFile {
  std::string text;
  std::string where;
};

TEST(LawFile, ErrorsNameThePlace) {
  const std::string tables = "t.json#/laws/0/tables/0";
  const std::vector<BadFile> files = {
      {"[]", "t.json#"},
      {R"({"schema": "headroom.devices/1"})", "t.json#/schema"},
      {R"({"schema": "headroom.timing/1"})", "t.json#/laws"},
      {R"({"schema": "headroom.timing/1", "engines": [{"name": "x"}], "laws": []})",
       "t.json#/engines/0/source"},
      {R"({"schema": "headroom.timing/1", "engines": [{"name": "x", "source": "",
          "host_base_seconds": -1}], "laws": []})",
       "t.json#/engines/0/host_base_seconds"},
      {file_with(kTable, "", "sorcery"), "t.json#/laws/0/class"},
      {file_with(R"({"features": [], "knots": [], "values": []})"), tables + "/features"},
      {file_with(R"({"features": ["mood"], "knots": [[0, 1]], "values": [0, 0]})"), tables},
      {file_with(R"({"features": ["context"], "knots": [[0, 1]], "values": [0, 0]})"), tables},
      {file_with(R"({"features": ["k"], "knots": [[0]], "values": [0]})"), tables + "/knots/0"},
      {file_with(R"({"features": ["k"], "knots": [7], "values": [0]})"), tables + "/knots/0"},
      {file_with(R"({"features": ["k"], "knots": [[1, 0]], "values": [0, 0]})"),
       tables + "/knots/0"},
      {file_with(R"({"features": ["k"], "knots": [[0, 0]], "values": [0, 0]})"),
       tables + "/knots/0"},
      {file_with(R"({"features": ["k"], "knots": [[0, 1e9]], "values": [0, 0]})"), tables},
      {file_with(R"({"features": ["k"], "knots": [[0, 1]], "values": [0]})"), tables + "/values"},
      {file_with(R"({"features": ["k"], "knots": [[0, 1]], "values": [0, 700]})"), tables},
      {file_with(R"({"features": ["k", "m"], "knots": [[0, 1]], "values": [0, 0]})"), tables},
      {file_with(kTable, R"(, "correction": {})"), "t.json#/laws/0/correction"},
      {file_with(kTable, R"(, "correction": {"features": ["k"], "center": [0], "scale": [0],
          "offset_sd": 0, "local_sd": 0, "noise_sd": 1, "half_width_log": {"large": 0, "small": 0}})"),
       "t.json#/laws/0/correction/scale"},
      {file_with(kTable, R"(, "correction": {"features": ["k"], "center": [0], "scale": [1],
          "offset_sd": 0, "local_sd": 0, "noise_sd": 0, "half_width_log": {"large": 0, "small": 0}})"),
       "t.json#/laws/0/correction/noise_sd"},
  };
  for (const BadFile& bad : files) {
    const auto file = read(bad.text);
    ASSERT_FALSE(file) << bad.text;
    EXPECT_EQ(file.error().where.rfind(bad.where, 0), 0U)
        << file.error().to_string() << "\nexpected at " << bad.where;
  }
}

}  // namespace
}  // namespace headroom::timing
