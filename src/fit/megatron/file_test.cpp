#include "fit/megatron/file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "fit/megatron/question.h"

namespace headroom::fit {
namespace {

const std::string kScript =
    "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 8 "
    "--hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 1024 "
    "--micro-batch-size 1 --vocab-size 1000 --lr 3e-4 --save $WHERE/last ";

class MegatronFile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("mega_") + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<FitQuestion> read(const std::string& content, const FitQuestion& flags,
                           std::optional<int64_t> gpus) {
    HEADROOM_ASSIGN(arguments_, engines::read_megatron_arguments(content, "run.sh"));
    return megatron_question(flags, arguments_, "run.sh", gpus);
  }

  Result<Emitted> emit(const FitQuestion& question) {
    return emit_megatron(question, arguments_, {"megatron", file_of("new.sh")});
  }

  std::string file_of(const char* name) const { return folder_ / name; }

  engines::MegatronArguments arguments_;
  std::filesystem::path folder_;
};

// What was given beside the file is in the file.
TEST_F(MegatronFile, WhatIsEmittedIsTheSameSetting) {
  struct Asked {
    std::string more;
    std::vector<std::pair<const char*, const char*>> flags;
    std::optional<int64_t> gpus;
  };
  for (const Asked& asked : std::vector<Asked>{
           {"--bf16 --tensor-model-parallel-size 2 --sequence-parallel", {}, {}},
           {"--bf16 --global-batch-size 64", {{"batch", "2"}, {"seq", "256"}}, 32},
           {"--bf16", {{"dtype", "fp16"}, {"grad-accum", "4"}}, 4},
           {"--fp16", {{"checkpointing", "full"}, {"vocab", "5000"}}, {}},
           {"--recompute-activations", {{"checkpointing", "none"}}, {}},
           {"--bf16 --transformer-impl local --no-masked-softmax-fusion "
            "--apply-query-key-layer-scaling --no-bias-gelu-fusion",
            {},
            {}},
           {"--bf16 --position-embedding-type rope --no-rope-fusion --rotary-interleaved "
            "--cross-entropy-loss-fusion",
            {},
            {}},
           {"--bf16 --disable-bias-linear --num-experts 8 --moe-shared-expert-gate "
            "--moe-shared-expert-intermediate-size 64",
            {},
            {}},
           {"--bf16 --fp8-format hybrid --fp8-recipe tensorwise", {}, 16},
           {"--bf16 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1",
            {{"grad-accum", "8"}, {"checkpointing", "selective"}},
            {}},
           {"--bf16 --use-distributed-optimizer --context-parallel-size 2 --overlap-grad-reduce",
            {{"allocator", "expandable_segments:True"}},
            {}}}) {
    FitQuestion flags;
    flags.device = "h100-sxm-80gb";
    for (const auto& [name, words] : asked.flags) ASSERT_TRUE(flags.set(name, words)) << name;
    const auto question = read(kScript + asked.more, flags, asked.gpus);
    ASSERT_TRUE(question) << question.error().to_string();
    const auto emitted = emit(*question);
    ASSERT_TRUE(emitted) << emitted.error().to_string();
    EXPECT_EQ(emitted->by_hand, std::vector<std::string>{"save"});
    const auto content = read_file(emitted->file, kMostSetup);
    FitQuestion nothing;
    nothing.device = flags.device;
    auto back = read(*content, nothing, std::nullopt);
    ASSERT_TRUE(back) << back.error().to_string() << *content;
    FitQuestion expected = *question;
    back->given = expected.given = {};
    expected.vocab.reset();  // it is in the model
    EXPECT_EQ(*back, expected) << *content;
  }
}

TEST_F(MegatronFile, MachinesAreAsTheyWereAskedFor) {
  FitQuestion flags;
  flags.device = "h100-sxm-80gb";
  auto question = read(kScript, flags, 64);
  ASSERT_TRUE(question);
  EXPECT_EQ(emit(*question)->command,
            "srun --nodes 8 --ntasks-per-node 1 bash " + file_of("new.sh"));
  ASSERT_TRUE(flags.set("nodes", "16"));
  question = read(kScript, flags, 64);
  EXPECT_EQ(emit(*question)->command.substr(0, 15), "srun --nodes 16");
  const std::string bare = kScript.substr(kScript.find("pretrain"));
  question = read(bare, FitQuestion(), 64);
  const auto emitted = emit(*question);
  EXPECT_EQ(emitted->command.substr(0, 5), "bash ");
  EXPECT_EQ(emitted->by_hand, std::vector<std::string>{"save"});
  EXPECT_EQ(
      emitted->notes,
      std::vector<std::string>{
          "in it all GPUs are in one machine: --nodes N here says how many machines there are"});
}

TEST_F(MegatronFile, APlanIsNoSettingOfPyTorchs) {
  FitQuestion flags;
  ASSERT_TRUE(flags.set("allocator", "planned"));
  const auto question = read(kScript, flags, 16);
  const auto emitted = emit(*question);
  EXPECT_EQ(emitted->by_hand, std::vector<std::string>{"save"});
  EXPECT_EQ(emitted->notes, std::vector<std::string>{std::string(kNoPlan)});
  EXPECT_EQ(read_file(emitted->file, kMostSetup)->find("ALLOC_CONF"), std::string::npos);
}

TEST_F(MegatronFile, WhatCannotBeWrittenIsRefused) {
  const auto message = [](const Result<Emitted>& emitted) {
    return emitted ? std::string() : emitted.error().message;
  };
  FitQuestion flags;
  ASSERT_TRUE(flags.set("seq", "2048"));
  const auto question = read(kScript, flags, 16);
  EXPECT_EQ(message(emit(*question)), "Megatron-LM refuses 2048 tokens with 1024 positions");
  const auto rotary = read(kScript + "--position-embedding-type rope", flags, 16);
  EXPECT_EQ(message(emit(*rotary)), "Megatron-LM refuses 2048 tokens with 1024 positions");
  FitQuestion many;
  for (const char* flag : {"batch", "grad-accum"}) ASSERT_TRUE(many.set(flag, "1000000"));
  EXPECT_EQ(message(emit(*read(kScript, many, 16))),
            "a step has more sequences than Megatron-LM's arguments say");
  EXPECT_EQ(message(emit_megatron(*question, arguments_, {"deepspeed", "ds.json"})),
            "is of other engines than Megatron-LM");
}

}  // namespace
}  // namespace headroom::fit
