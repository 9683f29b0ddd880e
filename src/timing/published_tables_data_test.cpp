// The laws of data/timing.json against the tables that they were fitted on: that the program says
// what the fit meant. Features, tables and laws are written twice (tools/timing in Python, here),
// so a slip in either shows as an error far beyond the fit's. How well the laws do on what they
// were not fitted on is another question: docs/measurements/2026-11-21-timing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "device/catalogue.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"
#include "timing/timing_model.h"

namespace headroom::timing {
namespace {

std::filesystem::path tables() { return tests::data_dir() / "performance" / "aiconfigurator"; }

struct Row {
  const text::CsvReader& reader;
  [[nodiscard]] int64_t at(const char* column) const {
    return *reader.get_int(*reader.column(column), 0, int64_t{1} << 40);
  }
  [[nodiscard]] double seconds() const {
    return *reader.get_double(*reader.column("latency_ms"), 0, 1e9) * 1e-3;
  }
};

Call gemm_of(const Row& row) {
  return gemm_call({.m = row.at("m"), .n = row.at("n"), .k = row.at("k")}, device::Rate::bf16, 2);
}

Call decode_of(const Row& row) {
  return attention_call({.batch = row.at("batch_size"),
                         .heads = row.at("num_heads"),
                         .kv_heads = row.at("num_key_value_heads"),
                         .head_dim = row.at("head_dim"),
                         .context = row.at("step") + 1},
                        device::Rate::bf16, 2);
}

// Median |error| in percent over the rows of a table.
double median_error_pct(const std::string& file, const char* device_name,
                        const std::function<Call(const Row&)>& call_of) {
  const TimingModel model = TimingModel::built_in();
  const device::Device device = *device::DeviceCatalogue::built_in().find(device_name);
  const std::string content = *read_file((tables() / file).string(), Bytes(64 * kMiB));
  text::CsvReader reader = *text::CsvReader::open(content, file);
  std::vector<double> errors;
  while (*reader.next()) {
    const Row row{reader};
    const PredictedTime time = *model.predict(call_of(row), device);
    EXPECT_EQ(time.basis.find("general"), std::string::npos);
    errors.push_back(100 * std::abs(time.seconds / row.seconds() - 1));
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

class PublishedTables : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(tables()))
      GTEST_SKIP() << "no " << tables() << ": set HEADROOM_DATA";
  }
};

TEST_F(PublishedTables, GemmIsReadAsItWasFitted) {
  EXPECT_LT(median_error_pct("h100_sxm_gemm_bf16_vllm0.24.0.csv", "h100-sxm-80gb", gemm_of), 6);
  EXPECT_LT(median_error_pct("a100_sxm_gemm_bf16_vllm0.14.0.csv", "a100-sxm-80gb", gemm_of), 7);
}

TEST_F(PublishedTables, DecodeAttentionIsReadAsItWasFitted) {
  const char* h100 = "h100_sxm_attention_decode_bf16_vllm0.24.0.csv";
  EXPECT_LT(median_error_pct(h100, "h100-sxm-80gb", decode_of), 7);
  const char* l40s = "l40s_attention_decode_bf16_vllm0.24.0.csv";
  EXPECT_LT(median_error_pct(l40s, "l40s-48gb", decode_of), 9);
}

// LLMCompass's products on an A100 (PrincetonUniversity/LLMCompass at 2e015fd), which no law was
// fitted on: another group's clock, board and PyTorch.
TEST_F(PublishedTables, ProductsOfAnotherGroupThatNothingWasFittedOn) {
  const auto path = tables().parent_path() / "llmcompass" / "matmul_A100.csv";
  const std::string content = *read_file(path.string(), Bytes(kMiB));
  const TimingModel model = TimingModel::built_in();
  const device::Device device = *device::DeviceCatalogue::built_in().find("a100-sxm-80gb");
  std::vector<double> errors;
  size_t within = 0;
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    long m = 0, n = 0, k = 0;
    double milliseconds = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%ld, %ld, %ld, %lfms", &m, &n, &k, &milliseconds), 4);
    const Call call = gemm_call({.m = m, .n = n, .k = k}, device::Rate::fp16, 2);
    const PredictedTime time = *model.predict(call, device);
    const double seconds = milliseconds * 1e-3;
    errors.push_back(100 * std::abs(time.seconds / seconds - 1));
    within += time.seconds_low <= seconds && seconds <= time.seconds_high ? 1 : 0;
    std::printf("llmcompass,%ld,%ld,%ld,%.4f,%.4f,%.4f,%.4f\n", m, n, k, milliseconds,
                time.seconds_low * 1e3, time.seconds * 1e3, time.seconds_high * 1e3);
  }
  std::sort(errors.begin(), errors.end());
  std::printf("# %zu products, median error %.1f %%, %zu within the 90 %% interval\n",
              errors.size(), errors[errors.size() / 2], within);
  EXPECT_LT(errors[errors.size() / 2], 20);
}

}  // namespace
}  // namespace headroom::timing
