// What issue 6 promises of linking, counting and sorting, on other people's traces: TraceLens' own
// totals of kernels and operators, nothing left unclassified, and names that sort as operators do.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "ops/ops.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"

namespace headroom::ops {
namespace {

std::filesystem::path traces() { return tests::data_dir() / "operator_traces"; }

// All Kineto traces of the folder.
std::vector<std::filesystem::path> kineto_traces() {
  std::vector<std::filesystem::path> found;
  for (const char* part : {"tracelens/traces", "hta", "param"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(traces() / part)) {
      const std::string name = entry.path().filename().string();
      const bool is_graph = name.find("_et.json") != std::string::npos;
      if (entry.is_regular_file() && name.ends_with(".json.gz") && !is_graph) {
        found.push_back(entry.path());
      }
    }
  }
  return found;
}

Result<OpsAnswer> ask(const std::filesystem::path& file) {
  OpsQuestion question;
  question.file = file.string();
  return answer(question);
}

class TraceLensTotals : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = traces() / "tracelens/traces/h100";
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
    trace_ = folder / (std::string(GetParam()) + ".json.gz");
    tables_ = folder / (std::string(GetParam()) + "_perf_report_csvs");
  }

  text::CsvTable table(const char* name) {
    const std::string path = (tables_ / name).string();
    const Result<std::string> text = read_file(path, Bytes(64 * kMiB));
    EXPECT_TRUE(text);
    Result<text::CsvTable> read = text::read_csv(*text, path);
    EXPECT_TRUE(read);
    return *read;
  }

  [[nodiscard]] Result<OpsAnswer> answer_of_trace() const { return ask(trace_); }

  std::filesystem::path trace_, tables_;
};

constexpr double kAgreement = 0.001;

TEST_P(TraceLensTotals, OfOperators) {
  const Result<OpsAnswer> answer = ask(trace_);
  ASSERT_TRUE(answer) << answer.error().to_string();
  std::map<std::string, OperatorTime> ours;
  for (const OperatorTime& row : answer->operators) ours[row.name] = row;
  const text::CsvTable theirs = table("ops_summary.csv");
  EXPECT_EQ(theirs.rows.size(), ours.size());
  for (size_t row = 0; row < theirs.rows.size(); ++row) {
    const std::string& name = theirs.at(row, "name");
    const double ms = std::stod(theirs.at(row, "total_direct_kernel_time_ms"));
    EXPECT_NEAR(ours[name].kernel_ms, ms, kAgreement * ms) << name;
    EXPECT_EQ(ours[name].count, std::stoll(theirs.at(row, "Count"))) << name;
  }
}

TEST_P(TraceLensTotals, OfKernels) {
  const Result<OpsAnswer> answer = ask(trace_);
  ASSERT_TRUE(answer) << answer.error().to_string();
  std::map<std::pair<std::string, std::string>, KernelRow> ours;
  for (const KernelRow& row : answer->kernels) ours[{row.name, row.operation}] = row;
  const text::CsvTable theirs = table("kernel_summary.csv");
  for (size_t row = 0; row < theirs.rows.size(); ++row) {
    const auto key = std::pair(theirs.at(row, "Kernel name"), theirs.at(row, "Parent cpu_op"));
    // Without an operator: launched before the step. Theirs counts it, here it is the backlog.
    if (key.second.empty()) continue;
    const double ms = std::stod(theirs.at(row, "Kernel duration (µs)_sum")) / 1000;
    ASSERT_TRUE(ours.contains(key)) << key.first << " of " << key.second;
    EXPECT_NEAR(ours[key].kernel_ms, ms, kAgreement * ms) << key.first;
    EXPECT_EQ(ours[key].count, std::stoll(theirs.at(row, "Kernel duration (µs)_count")));
    ours.erase(key);
  }
  // Their table of kernels leaves copies and fills out.
  for (const auto& [key, row] : ours) {
    EXPECT_TRUE(key.first.starts_with("Memcpy") || key.first.starts_with("Memset")) << key.first;
  }
}

// "((8944, 1024), (1024, 2816))" as "[[8944,1024],[1024,2816]]".
std::string our_shapes(const std::string& theirs) {
  std::string shapes;
  for (const char c : theirs) {
    if (c == ' ') continue;
    const char bracket = c == '(' ? '[' : c == ')' ? ']' : c;
    if (bracket == ']' && shapes.ends_with(',')) shapes.pop_back();
    shapes += bracket;
  }
  return shapes;
}

// The FLOPs of products, counted by the step model, are TraceLens'.
TEST_P(TraceLensTotals, OfWork) {
  const Result<OpsAnswer> answer = answer_of_trace();
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_TRUE(answer->roofline);
  std::map<std::pair<std::string, std::string>, RooflineRow> ours;
  for (const RooflineRow& row : answer->roofline->rows) {
    if (!row.rate.empty()) ours[{row.name, row.shapes}] = row;
    EXPECT_LE(row.rate.empty() ? 0 : row.achieved_pct, 100) << row.name << " beats the device";
  }
  const text::CsvTable theirs = table("unified_perf_summary.csv");
  size_t compared = 0;
  for (size_t row = 0; row < theirs.rows.size(); ++row) {
    const auto key = std::pair(theirs.at(row, "name"), our_shapes(theirs.at(row, "Input Dims")));
    const bool is_attention = key.first.find("attention") != std::string::npos;
    if (!ours.contains(key) || theirs.at(row, "GFLOPS").empty() || is_attention) continue;
    const double flops = std::stod(theirs.at(row, "GFLOPS")) * 1e9;
    // Theirs counts the addition of the bias too.
    EXPECT_NEAR(ours[key].flops, flops, 0.002 * flops) << key.first << key.second;
    ++compared;
  }
  EXPECT_GE(compared, 3U);
}

INSTANTIATE_TEST_SUITE_P(H100, TraceLensTotals,
                         ::testing::Values("Falconsai_nsfw_image_detection__1016002",
                                           "Qwen_Qwen1.5-0.5B-Chat__1016005",
                                           "gaunernst_bert-small-uncased__1016001"));

TEST(OperatorTraces, NothingIsLeftUnclassified) {
  if (!std::filesystem::exists(traces())) GTEST_SKIP() << "no " << traces();
  const auto files = kineto_traces();
  EXPECT_GE(files.size(), 25U);
  for (const std::filesystem::path& file : files) {
    const Result<OpsAnswer> answer = ask(file);
    ASSERT_TRUE(answer) << answer.error().to_string();
    EXPECT_LE(answer->coverage.unclassified_pct_of_kernel_time, 1.0) << file;
    // Otherwise a list that matches everything would do.
    const auto& agree = answer->coverage.names_agree_pct_of_kernel_time;
    EXPECT_GE(agree.value_or(100), 97.0) << file;
  }
}

// ONNX Runtime's profiles: every node has a group, and int8 takes share from the products, as the
// paper says.
TEST(OperatorTraces, OnnxRuntime) {
  const std::filesystem::path folder = traces() / "ort";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  std::map<std::string, double> non_gemm_pct;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".json.gz")) continue;
    const Result<OpsAnswer> answer = ask(entry.path());
    ASSERT_TRUE(answer) << answer.error().to_string();
    EXPECT_EQ(answer->trace.format, "ONNX Runtime");
    EXPECT_EQ(answer->steps.size(), 4U) << name;
    EXPECT_EQ(answer->coverage.unclassified_pct_of_kernel_time, 0) << name;
    for (const GroupShare& group : answer->kernel_time.groups) {
      if (group.name == "gemm") non_gemm_pct[name] = 100 - group.pct;
    }
  }
  EXPECT_GE(non_gemm_pct.size(), 6U);
  EXPECT_GT(non_gemm_pct["p_gpt2_s256_dynint8_opt99.json.gz"],
            1.5 * non_gemm_pct["p_gpt2_s256_fp32_opt99.json.gz"]);
  EXPECT_LT(non_gemm_pct["p_vit_b16_fp32_opt99.json.gz"],
            non_gemm_pct["p_vit_b16_fp32_opt0.json.gz"]);
}

TEST(OperatorTraces, AccountingsAreWhole) {
  if (!std::filesystem::exists(traces())) GTEST_SKIP() << "no " << traces();
  for (const std::filesystem::path& file : kineto_traces()) {
    const Result<OpsAnswer> answer = ask(file);
    ASSERT_TRUE(answer);
    for (const Accounting* accounting :
         {&answer->kernel_time, &answer->wall_time, &answer->nongemm_bench}) {
      if (accounting->total_ms == 0) continue;
      double ms = 0;
      double pct = 0;
      for (const GroupShare& group : accounting->groups) {
        EXPECT_GE(group.ms, 0);
        ms += group.ms;
        pct += group.pct;
      }
      EXPECT_NEAR(ms, accounting->total_ms, 1e-6 * accounting->total_ms) << file;
      EXPECT_NEAR(pct, 100, 1e-6) << file;
    }
  }
}

TEST(OperatorTraces, TheUnchangedRunIsReplayed) {
  if (!std::filesystem::exists(traces())) GTEST_SKIP() << "no " << traces();
  size_t replayed = 0;
  for (const std::filesystem::path& file : kineto_traces()) {
    const Result<OpsAnswer> answer = ask(file);
    ASSERT_TRUE(answer);
    if (!answer->replay) continue;
    ++replayed;
    constexpr double kPromisedPct = 2;
    EXPECT_LE(std::abs(answer->replay->error_pct), kPromisedPct) << file;
  }
  EXPECT_GE(replayed, 23U);
}

// No change of the horizon that makes something faster makes the replayed run slower.
TEST(OperatorTraces, FasterIsNeverSlower) {
  if (!std::filesystem::exists(traces())) GTEST_SKIP() << "no " << traces();
  for (const std::filesystem::path& file : kineto_traces()) {
    const Result<OpsAnswer> answer = ask(file);
    ASSERT_TRUE(answer);
    for (const HorizonChange& change : answer->horizon) {
      if (change.change == "cuda_graph") continue;  // its latency is another one
      if (change.change == "gemm_int8") continue;   // it adds kernels
      EXPECT_GE(change.speedup, 1 - 1e-9) << file << " " << change.change;
    }
  }
}

// A decode step in one graph: its capture gives every kernel an operator, sorted as its name is.
TEST(OperatorTraces, TheCaptureNamesTheOperatorsOfAGraph) {
  const auto folder = traces() / "tracelens/traces/inference/vllm_decode_full";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  OpsQuestion question;
  question.file = (folder / "graph_execution.json.gz").string();
  const Result<OpsAnswer> plain = answer(question);
  ASSERT_TRUE(plain);
  EXPECT_GT(plain->coverage.unlinked_pct_of_kernel_time, 90);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "capture_traces")) {
    question.capture = entry.path().string();
  }
  const Result<OpsAnswer> joined = answer(question);
  ASSERT_TRUE(joined) << joined.error().to_string();
  EXPECT_LT(joined->coverage.unlinked_pct_of_kernel_time, 1);
  EXPECT_GE(joined->coverage.names_agree_pct_of_kernel_time.value_or(0), 97);
  EXPECT_DOUBLE_EQ(joined->kernel_time.total_ms, plain->kernel_time.total_ms);
}

// Issue 6's example: on this trace Amdahl's law promises much for a GEMM in no time.
TEST(OperatorTraces, WhereTheHostSetsThePaceAFasterGemmGivesNothing) {
  const auto file =
      traces() / "tracelens/traces/h100/Falconsai_nsfw_image_detection__1016002.json.gz";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const Result<OpsAnswer> answer = ask(file);
  ASSERT_TRUE(answer);
  for (const HorizonChange& change : answer->horizon) {
    if (change.change == "gemm_instant") {
      EXPECT_LT(change.speedup, 1.02);
      EXPECT_GT(change.amdahl_speedup, 3);
    }
    if (change.change == "cuda_graph") {
      EXPECT_GT(change.speedup, 3);
    }
  }
}

}  // namespace
}  // namespace headroom::ops
