#include "fit/question.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace headroom::fit {
namespace {

std::string value_of(const FitQuestion& question, std::string_view name) {
  for (const Setting& setting : settings_of(question)) {
    if (setting.name == name) return setting.value;
  }
  return "(absent)";
}

TEST(FitQuestion, WordsRoundTripThroughSettings) {
  const std::pair<const char*, const char*> cases[] = {
      {"batch", "4"},
      {"seq", "4096"},
      {"dtype", "fp16"},
      {"mixed-precision", "bf16"},
      {"method", "qlora"},
      {"lora-rank", "64"},
      {"lora-dropout", "0.05"},
      {"lora-dtype", "bf16"},
      {"lora-targets", "q_proj,v_proj"},
      {"optimizer", "adamw-fused"},
      {"optimizer", "paged-adamw-8bit"},
      {"optimizer", "paged-adamw"},
      {"optimizer", "paged-lion-8bit"},
      {"optimizer", "ademamix"},
      {"optimizer", "rmsprop-bnb"},
      {"checkpointing", "every-4"},
      {"checkpointing-kind", "reentrant"},
      {"method", "lora-8bit"},
      {"checkpointing", "selective"},
      {"checkpointing", "selective-attention"},
      {"checkpointing", "selective-products"},
      {"checkpointing", "selective-every-2"},
      {"method", "dora"},
      {"method", "ia3"},
      {"ia3-feedforward", "up_proj,down_proj"},
      {"attention", "sdpa-flash"},
      {"loss", "fused-linear"},
      {"clip", "0.5"},
      {"offload", "optimizer"},
      {"vocab", "256000"},
      {"torch", "2.4.1+cu121"},
      {"allocator", "expandable_segments:True"},
  };
  FitQuestion plain;
  ASSERT_TRUE(plain.set("allocator", "default"));  // as the answer's settings say it
  EXPECT_TRUE(plain.allocator.empty());
  for (const auto& [name, words] : cases) {
    FitQuestion question;
    question.method = Method::lora;
    ASSERT_TRUE(question.set(name, words)) << name;
    EXPECT_EQ(value_of(question, name), words) << name;
  }
}

TEST(FitQuestion, RefusesWhatItDoesNotKnowAndLeavesTheFieldAlone) {
  const std::pair<const char*, const char*> cases[] = {
      {"batch", "0"},
      {"batch", "-3"},
      {"batch", "4x"},
      {"batch", "99999999999999999999"},
      {"dtype", "int4"},
      {"optimizer", "lion-fused"},
      {"optimizer", "paged-adamw-loop"},
      {"optimizer", "paged_adamw"},
      {"optimizer", "adafactor-fused"},
      {"optimizer", "hf-adafactor-foreach"},
      {"lora-dropout", "1"},
      {"lora-dropout", "-0.1"},
      {"gptq-group", "-1"},
      {"checkpointing", "every-0"},
      {"checkpointing", "some"},
      {"checkpointing", "selective-every-0"},
      {"checkpointing", "selective-some"},
      {"clip", "nan"},
      {"clip", "-1"},
      {"torch", "new"},
      {"device", "a\nb"},
      {"lora-targets", "q_proj,,v_proj"},
      {"vocab", "0"},
      {"", "1"},
  };
  for (const auto& [name, words] : cases) {
    FitQuestion question;
    const Result<void> result = question.set(name, words);
    ASSERT_FALSE(result) << name << " " << words;
    EXPECT_EQ(result.error().code, ErrorCode::usage);
    EXPECT_TRUE(question.given.empty());
    EXPECT_EQ(question.batch, 1);
    EXPECT_FALSE(question.vocab.has_value());
  }
}

TEST(FitQuestion, SuggestsTheWordThatWasMeant) {
  FitQuestion question;
  EXPECT_EQ(question.set("dtype", "bf61").error().hint, "did you mean 'bf16'?");
  EXPECT_EQ(question.set("optimizer", "adamw-fusd").error().hint, "did you mean 'adamw-fused'?");
  EXPECT_EQ(question.set("bacth", "4").error().hint, "did you mean --batch?");
}

TEST(FitQuestion, EveryFlagOfTheTableIsASetting) {
  FitQuestion question;
  question.method = Method::lora;
  for (const QuestionFlag& flag : question_flags()) {
    const Result<void> result = question.set(flag.name, "?\x01");
    ASSERT_FALSE(result) << flag.name;
    EXPECT_EQ(result.error().where, "--" + std::string(flag.name));
  }
}

TEST(FitQuestion, SaysWhichSettingsWereGiven) {
  FitQuestion question;
  ASSERT_TRUE(question.set("seq", "2048"));
  const std::vector<Setting> settings = settings_of(question);
  const auto seq = std::find_if(settings.begin(), settings.end(),
                                [](const Setting& s) { return s.name == "seq"; });
  ASSERT_NE(seq, settings.end());
  EXPECT_EQ(seq->origin, SettingOrigin::given);
  EXPECT_EQ(settings.front().origin, SettingOrigin::standard);
}

// DeepSpeed's third stage has settings of its own, and overlaps where nothing is said.
TEST(FitQuestion, TheThirdStageHasSettingsOfItsOwn) {
  FitQuestion question;
  ASSERT_TRUE(question.set("method", "zero3:8"));
  EXPECT_EQ(value_of(question, "method"), "full,zero3:8");
  EXPECT_EQ(value_of(question, "overlap-comm"), "true");
  EXPECT_EQ(value_of(question, "stage3-max-live-parameters"), "1000000000");
  for (const auto& [name, words] : {std::pair{"stage3-prefetch-bucket-size", "0"},
                                    {"stage3-prefetch-bucket-size", "auto"},
                                    {"stage3-param-persistence-threshold", "auto"},
                                    {"reduce-bucket-size", "auto"},
                                    {"stage3-max-reuse-distance", "0"},
                                    {"sub-group-size", "1000"},
                                    {"overlap-comm", "false"},
                                    {"offload", "optimizer,parameters"}}) {
    ASSERT_TRUE(question.set(name, words)) << name;
    EXPECT_EQ(value_of(question, name), words) << name;
  }
  for (const auto& [name, words] : {std::pair{"stage3-max-live-parameters", "auto"},
                                    {"stage3-prefetch-bucket-size", "-1"},
                                    {"sub-group-size", "0"},
                                    {"reduce-bucket-size", "0"},
                                    {"offload", "parameters,optimizer"}}) {
    EXPECT_FALSE(question.set(name, words)) << name << words;
  }
  ASSERT_TRUE(question.set("method", "zero2:1"));
  EXPECT_EQ(value_of(question, "stage3-max-live-parameters"), "(absent)");
  EXPECT_FALSE(question.set("method", "fsdp2:1"));
}

TEST(FitQuestion, CompilesWhatIsListed) {
  FitQuestion question;
  for (const char* words : {"layers,loss", "loss,layers"}) {
    ASSERT_TRUE(question.set("compile", words));
    EXPECT_TRUE(question.compile.layers && question.compile.loss);
    EXPECT_EQ(setting_of(settings_of(question), "compile"), "layers,loss");
  }
  ASSERT_TRUE(question.set("compile", "loss"));
  EXPECT_EQ(question.compile, (step::CompiledParts{.loss = true}));
  ASSERT_TRUE(question.set("compile", "none"));
  EXPECT_FALSE(question.compile.any());
  ASSERT_TRUE(question.set("compile", "model"));
  EXPECT_EQ(question.compile, (step::CompiledParts{.model = true}));
  EXPECT_EQ(setting_of(settings_of(question), "compile"), "model");
  for (const char* words :
       {"", "layer", "layers,", ",loss", "layers loss", "none,layers", "model,loss"}) {
    EXPECT_FALSE(question.set("compile", words)) << words;
  }
}

TEST(FitQuestion, AMethodMayBeDividedAmongGpus) {
  FitQuestion question;
  ASSERT_TRUE(question.set("method", "lora,fsdp1:8"));
  EXPECT_EQ(question.method, Method::lora);
  EXPECT_EQ(question.division, Division::fsdp1);
  EXPECT_EQ(question.ranks, 8);
  ASSERT_TRUE(question.set("method", "fsdp2:2"));
  EXPECT_EQ(question.division, Division::fsdp2);
  EXPECT_EQ(question.method, Method::full);
  ASSERT_TRUE(question.set("method", "lora,fsdp2:4,replicate:2"));
  EXPECT_EQ(question.replicas, 2);
  EXPECT_EQ(division_words(question), ",fsdp2:4,replicate:2");
  ASSERT_TRUE(question.set("method", "zero2:8"));
  EXPECT_EQ(question.division, Division::zero2);
  EXPECT_EQ(question.replicas, 1);
  ASSERT_TRUE(question.set("method", "fsdp2:2,tp:4"));
  EXPECT_EQ(question.tensor_ranks, 4);
  EXPECT_EQ(devices_of(question), 8);
  EXPECT_EQ(data_ranks_of(question), 2);
  EXPECT_EQ(division_words(question), ",fsdp2:2,tp:4");
  ASSERT_TRUE(question.set("method", "fsdp2:1,cp:8"));
  EXPECT_EQ(devices_of(question), 8);
  EXPECT_EQ(data_ranks_of(question), 1);
  EXPECT_EQ(division_words(question), ",fsdp2:1,cp:8");
  ASSERT_TRUE(question.set("seq", "4095"));
  EXPECT_EQ(part_of_sequence(question), 512);
  ASSERT_TRUE(question.set("method", "fsdp2:1,pp:4"));
  EXPECT_EQ(devices_of(question), 4);
  EXPECT_EQ(division_words(question), ",fsdp2:1,pp:4");
  ASSERT_TRUE(question.set("method", "fsdp2:1,tp:4"));
  EXPECT_EQ(division_words(question), ",fsdp2:1,tp:4");
  ASSERT_TRUE(question.set("method", "fsdp2:8,replicate:2,ep:4"));
  EXPECT_EQ(question.expert_ranks, 4);
  EXPECT_EQ(devices_of(question), 16);
  EXPECT_EQ(division_words(question), ",fsdp2:8,replicate:2,ep:4");
  ASSERT_TRUE(question.set("method", "tp:2"));
  EXPECT_EQ(question.division, Division::none);
  EXPECT_EQ(division_words(question), ",tp:2");
  ASSERT_TRUE(question.set("method", "full"));
  EXPECT_EQ(question.tensor_ranks, 1);
  EXPECT_EQ(question.ranks, 1);
  for (const char* words : {"fsdp1",
                            "fsdp1:",
                            "fsdp1:0",
                            "fsdp2:1",
                            "fsdp2:1,replicate:2,pp:2",
                            "fsdp2:65537",
                            "fsdp1:2x",
                            "fsdp1:2,fsdp1:2",
                            "lora,full",
                            "tp:1",
                            "cp:2",
                            "ddp:2,cp:2",
                            "fsdp2:2,cp:1",
                            "tp",
                            "tp:2,tp:2",
                            "tp:65536,ddp:2",
                            "tp:2,replicate:2",
                            "ddp",
                            "ddp:2,replicate:2",
                            "replicate:2",
                            "fsdp2:2,replicate:2,replicate:2",
                            "lora,",
                            "",
                            "fsdp1:999999999999999999999"}) {
    EXPECT_FALSE(question.set("method", words)) << words;
  }
}

}  // namespace
}  // namespace headroom::fit
