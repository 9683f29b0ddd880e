// What `bench device` measured, in the time of a training step.
#include "fit/time/step_timer.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <random>

#include "base/file.h"
#include "device/catalogue.h"
#include "fit/fit.h"
#include "fit/megatron/choice.h"
#include "fit/megatron/question.h"
#include "fit/scenario/shared_steps.h"
#include "fit/search/methods.h"
#include "fit/search/network.h"
#include "timing/calibration.h"
#include "timing/operator_work.h"

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

// What a file of devices may leave out is asked for.
TEST(StepTimer, AGpuOfNoGenerationIsAnError) {
  auto device = *device::DeviceCatalogue::built_in().find(kDevice);
  device.compute_capability = {};
  const auto scenario = resolve(gpt2_on(kDevice, {}), device);
  ASSERT_FALSE(scenario);
  EXPECT_EQ(scenario.error().code, ErrorCode::bad_input);
  EXPECT_NE(scenario.error().message.find("compute_capability"), std::string::npos);
}

// Few simulated micro-batches say as much of a step as all of them, whatever is sent beside them.
void expect_time_of_all(const Scenario& scenario, const StepTimer& timer) {
  const auto shared = scenario.steps->of(scenario);
  ASSERT_TRUE(shared) << shared.error().to_string();
  const auto trace = step::trace_training(*(*shared)->graph, scenario.train);
  ASSERT_TRUE(trace);
  const auto timed = timer.timed(scenario, *trace);
  ASSERT_TRUE(timed) << timed.error().to_string();
  const StepTime& time = timed->time;
  Scenario whole = scenario;
  whole.train.accumulation = scenario.question.grad_accum;
  const auto trace_of_all = step::trace_training(*(*shared)->graph, whole.train);
  ASSERT_TRUE(trace_of_all);
  const auto all = timer.time_of(whole, *trace_of_all);
  ASSERT_TRUE(all) << all.error().to_string();
  const double small = 1e-9 * all->step_seconds.expected;
  EXPECT_NEAR(time.step_seconds.expected, all->step_seconds.expected, small);
  EXPECT_NEAR(time.step_seconds.high, all->step_seconds.high, small);
  EXPECT_NEAR(time.compute_seconds, all->compute_seconds, small);
  EXPECT_NEAR(time.exposed_seconds, all->exposed_seconds, small);
  EXPECT_EQ(time.kernels, all->kernels);
  EXPECT_GE(time.exposed_seconds, 0);
  EXPECT_GE(time.step_seconds.expected, time.compute_seconds);
  EXPECT_TRUE(scenario.train.pipeline.stages == 1 || timed->micro_batch_seconds > 0);
  const auto repeated = repeated_calls(scenario, *trace);
  ASSERT_TRUE(repeated);
  const double sent = timing::sent_bytes(*trace, division_of(scenario.question), *repeated);
  EXPECT_NEAR(sent, timing::sent_bytes(*trace_of_all, division_of(scenario.question)), 1e-9 * sent);
}

// What is read from the step alone is what a step with a group less lacks.
void expect_calls_of_a_group(const Scenario& scenario) {
  const auto shared = scenario.steps->of(scenario);
  ASSERT_TRUE(shared);
  const auto longer = step::trace_training(*(*shared)->graph, scenario.train);
  ASSERT_TRUE(longer);
  const auto repeated = repeated_calls(scenario, *longer);
  ASSERT_TRUE(repeated);
  if (repeated->count == 0) return;  // all were simulated
  step::TrainOptions train = scenario.train;
  train.accumulation -= train.pipeline.chunks > 1 ? train.pipeline.group_size() : 1;
  const auto shorter = step::trace_training(*(*shared)->graph, train);
  ASSERT_TRUE(shorter);
  const auto added = timing::added_calls(timing::last_step(*longer), timing::last_step(*shorter));
  ASSERT_TRUE(added);
  EXPECT_EQ(repeated->first, added->first);
  EXPECT_EQ(repeated->count, added->count);
}

TEST(StepTimer, MicroBatchesThatWereNotSimulatedTakeTheirTime) {
  const auto timer = StepTimer::make("");
  ASSERT_TRUE(timer);
  for (const char* method :
       {"full", "lora", "ddp:16", "zero1:16", "zero2:16", "fsdp1:16", "fsdp2:16",
        "fsdp2:8,replicate:2", "fsdp2:8,tp:2", "ddp:8,tp:2", "lora,fsdp2:16"}) {
    for (const char* link : {"roce-10g", "ib-400g"}) {
      SCOPED_TRACE(std::string(method) + " " + link);
      FitQuestion question = gpt2_on("h100-sxm-80gb", {});
      if (std::string(method).ends_with("tp:2")) question.model = "Qwen/Qwen3-0.6B";
      ASSERT_TRUE(question.set("method", method));
      if (question.ranks > 1) {
        ASSERT_TRUE(question.set("nodes", "2"));
        ASSERT_TRUE(question.set("link", link));
      }
      question.grad_accum = 13;
      const auto scenario = resolve(question);
      ASSERT_TRUE(scenario) << scenario.error().to_string();
      expect_time_of_all(*scenario, *timer);
    }
  }
}

// Over links, batches and divisions that are drawn.
TEST(StepTimer, MicroBatchesOfMegatronsTakeTheirTime) {
  const auto timer = StepTimer::make("");
  ASSERT_TRUE(timer);
  const Kept config(std::string(R"({"model_type": "llama", "vocab_size": 4096, "hidden_size": 1024,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
    "intermediate_size": 2048, "max_position_embeddings": 8192})"));
  std::mt19937 draws(7);
  int stages = 0;
  int chunks = 0;
  for (const char* link : {"roce-10g", "roce-25g", "ib-400g"}) {
    FitQuestion asked;
    asked.model = config.path();
    asked.device = "h100-sxm-80gb";
    for (const auto& [flag, word] : std::vector<std::pair<const char*, const char*>>{
             {"seq", "2048"}, {"global-batch", "96"}, {"nodes", "2"}, {"link", link}}) {
      ASSERT_TRUE(asked.set(flag, word));
    }
    const auto model = megatron_model(asked, 16);
    ASSERT_TRUE(model) << model.error().to_string();
    const auto listed = megatron_divisions(model->model, {.gpus = 16, .devices_per_node = 8});
    ASSERT_GT(listed.size(), 50U);
    for (int i = 0; i < 60; ++i) {
      const MegatronDivision& division = listed[draws() % listed.size()];
      SCOPED_TRACE(flags_of(division) + " " + link);
      auto question = setting_question(*model, division);
      ASSERT_TRUE(question) << question.error().to_string();
      question->megatron->look_at(static_cast<int64_t>(draws()) % division.stages);
      const auto scenario = resolve(*question);
      ASSERT_TRUE(scenario) << scenario.error().to_string();
      expect_time_of_all(*scenario, *timer);
      expect_calls_of_a_group(*scenario);
      if (division.stages > 1) ++stages;
      if (division.chunks > 1) ++chunks;
    }
  }
  EXPECT_GT(stages, 0);
  EXPECT_GT(chunks, 0);
}

}  // namespace
}  // namespace headroom::fit
