// Files of measurements with a calibration beside them, and rows of a pipeline.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "device/catalogue.h"
#include "fit/fit.h"
#include "fit/measured/measured_row.h"
#include "text/json.h"
#include "timing/calibration.h"

namespace headroom::fit {
namespace {

class Kept {
 public:
  Kept(const char* name, const std::string& content)
      : path_(std::filesystem::temp_directory_path() /
              ("headroom-against-" + std::to_string(::getpid()) + name)) {
    EXPECT_TRUE(write_file_atomic(path_.string(), content));
  }
  ~Kept() { std::filesystem::remove(path_); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string row_on(const std::string& gpu) {
  return "id,source,model,method,weights_dtype,optimizer,micro_batch,seq_len,gpu,n_gpus,metric,"
         "value_bytes,step_seconds\n"
         "1,here,openai-community/gpt2,full fine-tune,bfloat16,AdamW,4,256," +
         gpu + ",1,torch max_memory_allocated,,0.1\n";
}

AgainstRow answered(const std::string& table, const std::string& calibration = {}) {
  const Kept file("rows.csv", table);
  AgainstQuestion question;
  question.file = file.path();
  question.calibration = calibration;
  const auto answer = answer_against(question);
  EXPECT_TRUE(answer) << answer.error().to_string();
  return answer && !answer->rows.empty() ? answer->rows.front() : AgainstRow{};
}

// A machine of somebody's own, with the figures of one that is known.
timing::Calibration own_machine() {
  timing::Calibration calibration;
  calibration.machine = {.product = "Lab GPU",
                         .kind = "cuda",
                         .memory = Bytes(80 * kGiB),
                         .cache = Bytes(40 * kMiB),
                         .units = 108,
                         .torch = "2.13.0",
                         .python = "3.11.7"};
  calibration.device = "lab-gpu";
  calibration.devices = *text::parse_json(R"({"schema": "headroom.devices/1",
      "sources": {"s": {"provenance": "measured", "text": "here"}},
      "devices": [{"name": "lab-gpu", "product": "Lab GPU", "vendor": "nvidia",
        "architecture": "ampere", "compute_capability": {"value": "8.0", "source": "s"},
        "memory_bytes": {"value": 85899345920, "source": "s"},
        "bandwidth_bytes_per_second": {"value": 2e12, "source": "s"},
        "l2_bytes": {"value": 41943040, "source": "s"},
        "sm_count": {"value": 108, "source": "s"},
        "dense_flops_per_second": {"bf16": {"value": 3.12e14, "source": "s"},
                                   "fp32": {"value": 1.95e13, "source": "s"}}}]})",
                                          "devices");
  return calibration;
}

TEST(Against, ADeviceThatOnlyTheCalibrationKnowsIsAsked) {
  const Kept calibration("own.json", timing::calibration_json(own_machine()).dump());
  EXPECT_FALSE(answered(row_on("lab-gpu")).supported);
  const AgainstRow known = answered(row_on("lab-gpu"), calibration.path());
  EXPECT_TRUE(known.supported) << known.reason;
  ASSERT_TRUE(known.predicted_seconds);
  EXPECT_GT(known.predicted_seconds->expected, 0);
}

TEST(Against, ACalibrationThatHoldsNothingIsRefused) {
  const Kept file("rows2.csv", row_on("A100-80GB"));
  const Kept empty("empty.json", R"({"schema": "headroom.calibration/1"})");
  AgainstQuestion question;
  question.file = file.path();
  question.calibration = empty.path();
  const auto answer = answer_against(question);
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("corrects nothing"), std::string::npos);
}

// fms-acceleration's counter does not see the weights of adapters that FSDP ignores.
TEST(Against, WeightsThatACounterMissedAreNotHeldAgainstIt) {
  const auto after_step = [](const std::string& source, const std::string& configuration) {
    const AgainstRow row = answered(
        "source,model,method,weights_dtype,mixed_precision,optimizer,micro_batch,seq_len,gpu,"
        "n_gpus,parallelism,framework,metric,value_bytes,alloc_after_step_bytes\n" +
        source +
        ",mistralai/Mistral-7B-v0.1,\"QLoRA nf4 (bitsandbytes) r=16 alpha=16 "
        "targets=q,k,v,o(+c_attn)\",bfloat16,bf16 autocast,AdamW,1,256,A100-80GB,2,FSDP1 "
        "FULL_SHARD,HF Trainer + accelerate FSDP1 FULL_SHARD BACKWARD_PRE; framework_config=" +
        configuration + ",torch max_memory_allocated,,1000\n");
    EXPECT_TRUE(row.supported) << row.reason;
    return row.predicted.value_or(Bytes(0)).count;
  };
  constexpr int64_t kRank = 16;
  constexpr int64_t kSizes = 2 * (4096 + 4096) + 2 * (4096 + 1024);  // of q, o, k and v
  const std::string fused = "accelerated-peft-bnb-foak";
  EXPECT_EQ(after_step("somebody", fused) - after_step("fms-acceleration", fused),
            4 * 32 * kRank * kSizes);
  const std::string plain = "accelerated-peft-bnb";
  EXPECT_EQ(after_step("somebody", plain), after_step("fms-acceleration", plain));
}

// Of several GPUs people tell the most: of these stages the second holds more than the first.
TEST(Against, ARunInStagesIsHeldAgainstTheFullest) {
  const std::string table =
      "framework,parallelism,model,method,weights_dtype,mixed_precision,optimizer,micro_batch,"
      "seq_len,act_ckpt,attention,gpu,n_gpus,metric,value_bytes\n"
      "torchtitan FSDP2 eager,FSDP2 PP2 Interleaved 1F1B,Llama 3.1 8B,pre-training,fp32 sharded "
      "params,FSDP2,AdamW,4,2048,full,SDPA flash,H100 96GB,4,max reserved,1000\n";
  const AgainstRow row = answered(table);
  ASSERT_TRUE(row.supported) << row.reason;
  auto question = question_of(text::read_csv(table, "rows.csv").value(), 0);
  ASSERT_TRUE(question) << question.error().to_string();
  question->device = "h100-sxm-96gb";
  const auto told = answer(*question);
  ASSERT_TRUE(told) << told.error().to_string();
  ASSERT_EQ(told->stages.size(), 2U);
  EXPECT_GT(told->stages[1].peak_allocated, told->stages[0].peak_allocated);
  EXPECT_EQ(*row.predicted, told->memory.peak_reserved);
}

// One rank's layers do not tell what the step of all stages takes.
TEST(Against, AStageOfAPipelineHasNoStepTime) {
  const std::string columns =
      "framework,model,gpu,layers,hidden,heads,kv_heads,head_dim,ffn,padded_vocab,norm,activation,"
      "weights_dtype,position_embedding,tp,pp,vpp,cp,dp,world_size,last_stage_layers,"
      "num_micro_batches,micro_batch,seq_len,value_bytes,step_seconds\n";
  const std::string row =
      "Megatron-LM,gpt,h100-sxm-80gb,4,256,8,8,32,1024,1024,LayerNorm,gelu,bf16,rope,";
  const std::string rest = "8,1,512,,1\n";
  const AgainstRow staged = answered(columns + row + "1,2,1,1,1,2,2," + rest);
  EXPECT_FALSE(staged.supported);
  EXPECT_NE(staged.reason.find("one rank of a pipeline"), std::string::npos) << staged.reason;
  const AgainstRow whole = answered(columns + row + "2,1,1,1,1,2,4," + rest);
  EXPECT_TRUE(whole.supported) << whole.reason;
  ASSERT_TRUE(whole.predicted_seconds);
  EXPECT_LT(whole.predicted_seconds->low, whole.predicted_seconds->expected);
  EXPECT_LT(whole.predicted_seconds->expected, whole.predicted_seconds->high);
}

}  // namespace
}  // namespace headroom::fit
