// Latent attention of decode steps against FlashMLA's times on an H800 (InferSim's table, 128
// heads, a latent of 512 and a rotated key of 64), none of which any law was fitted to. An H800 has
// an H100's memory and arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "device/catalogue.h"
#include "model/builtin.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"
#include "timing/decode_step.h"

namespace headroom::timing {
namespace {

std::filesystem::path table() {
  return tests::data_dir() / "performance" / "infersim" / "mla_decode_h800_128-512-64.csv";
}

struct Point {
  int64_t batch = 1;
  int64_t context = 2;
  double seconds = 0;
};

std::vector<Point> points_of(const std::filesystem::path& path) {
  const std::string content = *read_file(path.string(), Bytes(kMiB));
  text::CsvReader reader = *text::CsvReader::open(content, path.string());
  std::vector<Point> points;
  while (*reader.next()) {
    points.push_back({*reader.get_int(*reader.column("batch_size"), 1, 1 << 20),
                      *reader.get_int(*reader.column("kv_len"), 2, 1 << 24),
                      1e-6 * *reader.get_double(*reader.column("latency_us"), 0, 1e9)});
  }
  return points;
}

TEST(LatentAttentionData, FlashMlaOnAnH800) {
  if (!std::filesystem::exists(table())) GTEST_SKIP() << "no " << table();
  const TimingModel timing = TimingModel::built_in();
  const device::Device device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  const auto model = *model::resolve_model("deepseek-ai/DeepSeek-V3");
  std::vector<double> errors;
  double covered = 0;
  for (const Point& point : points_of(table())) {
    const auto predictor =
        DecodePredictor::make(model.view(), device, {.context = point.context}, timing);
    ASSERT_TRUE(predictor) << predictor.error().to_string();
    constexpr double kLayers = 61;
    const TimeInterval time = predictor->step(point.batch)->attention.time;
    const double measured = kLayers * point.seconds;
    errors.push_back(std::abs(time.seconds / measured - 1));
    covered += time.low_seconds <= measured && measured <= time.high_seconds ? 1 : 0;
  }
  const auto count = static_cast<double>(errors.size());
  std::ranges::sort(errors);
  const double median = errors[errors.size() / 2];
  std::printf("%.0f points: median error %.1f %%, p90 %.1f %%, %.0f %% within the interval\n",
              count, 100 * median, 100 * errors[errors.size() * 9 / 10], 100 * covered / count);
  // 12.3 %, and 83 % of the 90 that should be.
  EXPECT_LT(median, 0.15);
  EXPECT_GT(covered / count, 0.8);
}

// What the interval of such kernels is made of: how far the law of an H100, of AIConfigurator's
// table, is off on FlashAttention's times on an H800, of grouped heads (32, 8, of 128).
TEST(LatentAttentionData, AnotherLibrarysKernelIsSoFarOff) {
  const auto path = table().parent_path() / "mha_decode_h800_32-8-128.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const TimingModel timing = TimingModel::built_in();
  const device::Device device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  std::vector<double> errors;
  for (const Point& point : points_of(path)) {
    const Call call = attention_call({.batch = point.batch,
                                      .heads = 32,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .context = point.context},
                                     device::Rate::bf16, 2);
    const auto time = *timing.predict(call, device);
    errors.push_back(std::abs(std::log(time.seconds / point.seconds)));
  }
  std::ranges::sort(errors);
  EXPECT_NEAR(errors[errors.size() * 9 / 10], kOtherKernelHalfWidthLog, 0.01);
}

}  // namespace
}  // namespace headroom::timing
