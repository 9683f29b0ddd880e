// What `bench device` measured, in the time of a training step.
#include "fit/step_timer.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "device/catalogue.h"
#include "fit/fit.h"
#include "fit/methods.h"
#include "timing/calibration.h"

namespace headroom::fit {
namespace {

constexpr const char* kDevice = "a100-sxm-80gb";

FitQuestion gpt2_on(const std::string& device, const std::string& calibration) {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = device;
  question.batch = 8;
  question.seq = 512;
  question.search = false;
  question.calibration = calibration;
  return question;
}

// Products that take `slower` times what the laws say.
timing::Calibration slower_products(double slower) {
  timing::Calibration calibration;
  calibration.machine = {.product = "NVIDIA A100-SXM4-80GB",
                         .kind = "cuda",
                         .memory = Bytes(80 * kGiB),
                         .cache = Bytes(40 * kMiB),
                         .units = 108,
                         .torch = "2.13.0",
                         .python = "3.11.7"};
  calibration.device = kDevice;
  const auto device = *device::DeviceCatalogue::built_in().find(kDevice);
  const auto model = timing::TimingModel::built_in();
  for (int64_t m = 256; m <= 16384; m *= 2) {
    for (int64_t n = 512; n <= 8192; n *= 4) {
      const auto call = timing::gemm_call({.m = m, .n = n, .k = 1024}, device::Rate::bf16, 2);
      timing::MeasuredPoint point;
      point.call = call;
      point.seconds = slower * model.predict(call, device)->seconds;
      calibration.points.push_back(point);
    }
  }
  return calibration;
}

class Kept {
 public:
  explicit Kept(const std::string& content)
      : path_(std::filesystem::temp_directory_path() /
              ("headroom-step-timer-" + std::to_string(::getpid()) + ".json")) {
    EXPECT_TRUE(write_file_atomic(path_.string(), content));
  }
  explicit Kept(const timing::Calibration& calibration)
      : Kept(timing::calibration_json(calibration).dump()) {}
  ~Kept() { std::filesystem::remove(path_); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(StepTimer, TimesFollowWhatWasMeasured) {
  const auto without = answer(gpt2_on(kDevice, {}));
  ASSERT_TRUE(without && without->time);
  const Kept kept(slower_products(3));
  const auto with = answer(gpt2_on(kDevice, kept.path()));
  ASSERT_TRUE(with) << with.error().to_string();
  ASSERT_TRUE(with->time);
  EXPECT_GT(with->time->step_seconds.expected, 1.3 * without->time->step_seconds.expected);
  EXPECT_EQ(with->memory.peak_allocated, without->memory.peak_allocated);
  EXPECT_TRUE(with->warnings == without->warnings);
}

TEST(StepTimer, OfAnotherDeviceItIsSaidAndChangesNothing) {
  const Kept kept(slower_products(3));
  const auto without = answer(gpt2_on("h100-sxm-80gb", {}));
  const auto with = answer(gpt2_on("h100-sxm-80gb", kept.path()));
  ASSERT_TRUE(without && without->time && with && with->time);
  EXPECT_DOUBLE_EQ(with->time->step_seconds.expected, without->time->step_seconds.expected);
  ASSERT_FALSE(with->warnings.empty());
  EXPECT_NE(with->warnings.front().find("calibration is of a100-sxm-80gb"), std::string::npos);
}

TEST(StepTimer, AmongGpusItIsSaidAsWell) {
  const Kept kept(slower_products(3));
  const auto chosen = choose_method(gpt2_on("h100-sxm-80gb", kept.path()), 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  ASSERT_FALSE(chosen->warnings.empty());
  EXPECT_NE(chosen->warnings.front().find("calibration is of a100-sxm-80gb"), std::string::npos);
}

TEST(StepTimer, AFileThatHoldsNeitherIsRefused) {
  const Kept kept(std::string(R"({"schema": "headroom.calibration/1"})"));
  const auto with = answer(gpt2_on(kDevice, kept.path()));
  ASSERT_FALSE(with);
  EXPECT_EQ(with.error().code, ErrorCode::bad_input);
  EXPECT_NE(with.error().message.find("corrects nothing"), std::string::npos);
}

TEST(StepTimer, AFileThatWasCutIsAnErrorThatNamesIt) {
  const std::string whole = timing::calibration_json(slower_products(1)).dump();
  for (const size_t size : {size_t{0}, size_t{1}, whole.size() / 3, whole.size() - 1}) {
    const Kept kept(whole.substr(0, size));
    const auto with = answer(gpt2_on(kDevice, kept.path()));
    ASSERT_FALSE(with) << size;
    EXPECT_NE(with.error().to_string().find("headroom-step-timer"), std::string::npos);
  }
}

}  // namespace
}  // namespace headroom::fit
