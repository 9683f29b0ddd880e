#include "fit/setup/setup_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace headroom::fit {
namespace {

class SetupFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("setup_file_" + std::to_string(testing::UnitTest::GetInstance()->random_seed()) +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The question as the emitted file has it.
  FitQuestion read_back(const FitQuestion& question, const std::string& kind) {
    const std::string file = folder_ / kind;
    const auto emitted = emit_setup(question, {kind, file});
    EXPECT_TRUE(emitted) << emitted.error().to_string();
    const auto content = read_file(file, Bytes(kMiB));
    const auto flags = flags_of_setup(*content, file);
    EXPECT_TRUE(flags) << flags.error().to_string() << *content;
    FitQuestion read;
    for (const auto& [name, words] : flags->flags) EXPECT_TRUE(read.set(name, words)) << name;
    return read;
  }

  std::filesystem::path folder_;
};

FitQuestion question_of(std::initializer_list<std::pair<const char*, const char*>> flags) {
  FitQuestion question;
  for (const auto& [name, words] : flags) EXPECT_TRUE(question.set(name, words)) << name << words;
  return question;
}

TEST_F(SetupFile, TorchtitanReadsBack) {
  for (const char* method : {"fsdp2:8", "fsdp2:4,replicate:2"}) {
    for (const char* checkpointing : {"none", "full", "selective-every-2"}) {
      for (const auto& [name, type] : {std::pair{"mixed-precision", "bf16"}, {"dtype", "fp32"}}) {
        FitQuestion asked = question_of({{"method", method},
                                         {"checkpointing", checkpointing},
                                         {name, type},
                                         {"batch", "2"},
                                         {"seq", "4096"},
                                         {"grad-accum", "3"},
                                         {"clip", "0.5"},
                                         {"optimizer", "adamw-fused"},
                                         {"attention", "sdpa"},
                                         {"reduce-dtype", "fp32"},
                                         {"allocator", "expandable_segments:True"},
                                         {"shard-ends", "true"},
                                         {"loss", "chunked-head"},
                                         {"loss-chunks", "8"}});
        asked.model = "meta-llama/Llama-3.1-8B";
        FitQuestion read = read_back(asked, "torchtitan");
        read.model = asked.model;  // which the file says apart
        read.given = asked.given;
        EXPECT_EQ(read, asked) << method << checkpointing << type;
      }
    }
  }
}

TEST_F(SetupFile, TorchtitanReadsBackWhatIsCompiledAndStaysWhole) {
  for (const char* compile : {"none", "layers", "loss", "layers,loss"}) {
    for (const char* reshards : {"true", "false"}) {
      FitQuestion asked = question_of({{"method", "fsdp2:8"},
                                       {"compile", compile},
                                       {"reshard-after-forward", reshards},
                                       {"loss", "hf"}});
      asked.model = "Qwen/Qwen3-0.6B";
      const FitQuestion read = read_back(asked, "torchtitan");
      EXPECT_EQ(read.compile, asked.compile) << compile;
      EXPECT_EQ(read.reshards, asked.reshards) << reshards;
      EXPECT_TRUE(shards_ends(read));
    }
  }
}

TEST_F(SetupFile, WhatTorchtitanSaysOtherwiseIsNamed) {
  FitQuestion asked =
      question_of({{"method", "fsdp2:8"}, {"optimizer", "lion"}, {"loss", "chunked"}});
  asked.model = "Qwen/Qwen3-14B";
  const EmitRequest request{"torchtitan", folder_ / "run.sh"};
  const auto emitted = emit_setup(asked, request);
  ASSERT_TRUE(emitted) << emitted.error().to_string();
  EXPECT_EQ(emitted->command, "bash " + request.file);
  EXPECT_EQ(emitted->by_hand,
            (std::vector<std::string>{"reduce-dtype", "clip", "optimizer", "loss"}));
  asked.model = "openai-community/gpt2";
  EXPECT_FALSE(emit_setup(asked, request));
}

// One line of why, and one of what to ask.
TEST_F(SetupFile, WhatTorchtitanHasNoWordsForIsSaidWithTheReason) {
  struct Case {
    std::string method;
    std::pair<const char*, const char*> more;
    const char* message;
    const char* hint;
  };
  for (const auto& [method, more, message, hint] :
       {Case{"ddp:8", {}, "divides a step by fully_shard", "--method fsdp2:N"},
        Case{"lora,fsdp2:8", {}, "no argument for adapters", "leave lora out"},
        Case{"fsdp2:8", {"task", "sequence-classification"}, "not over classes", ""},
        Case{"fsdp2:4,tp:2", {}, "divide sequences", "--sequence-parallel true"},
        Case{"tp:2", {}, "divide sequences", "--sequence-parallel true"},
        Case{"fsdp2:8",
             {"checkpointing", "every-2"},
             "recomputes nothing, whole layers",
             "selective-every-2"},
        Case{"fsdp2:8", {"dtype", "fp16"}, "bf16 or float32", "--dtype bf16"},
        Case{"fsdp2:2,pp:2", {"loss", "chunked-head"}, "whole logits", "--loss hf"},
        Case{"fsdp2:2,pp:2", {"pipeline-schedule", "zero-bubble"}, "two parts or more", "vpp:2"},
        Case{"fsdp2:2,pp:2", {"stage-layers", "15,17"}, "layers of each stage", "leave --stage"},
        // 40 layers, embedding and head
        Case{"fsdp2:2,pp:2,vpp:4", {}, "into 8 parts", "pp:2 with vpp:2, vpp:3, vpp:7, vpp:21"}}) {
    FitQuestion question = question_of({{"method", method.c_str()}});
    question.model = "Qwen/Qwen3-14B";
    if (more.first != nullptr) {
      ASSERT_TRUE(question.set(more.first, more.second));
    }
    const auto said = check_said(question, "torchtitan");
    ASSERT_FALSE(said) << method;
    EXPECT_NE(said.error().message.find(message), std::string::npos) << said.error().message;
    EXPECT_NE(said.error().hint.find(hint), std::string::npos) << said.error().hint;
    EXPECT_FALSE(emit_setup(question, {"torchtitan", folder_ / "run.sh"})) << method;
  }
}

// Whose head is the embedding; torchtitan's models/common/decoder.py refuses it.
TEST_F(SetupFile, TorchtitanHasNoStagesOfATiedModel) {
  FitQuestion asked = question_of({{"method", "fsdp2:2,pp:2"}, {"loss", "hf"}});
  asked.model = "Qwen/Qwen3-0.6B";
  const auto said = check_said(asked, "torchtitan");
  ASSERT_FALSE(said);
  EXPECT_NE(said.error().message.find("whose head is the embedding"), std::string::npos);
  ASSERT_TRUE(asked.set("method", "fsdp2:4"));
  EXPECT_TRUE(check_said(asked, "torchtitan"));
}

// Stages that share nothing out are fully_shard's of one rank, and a note says so.
TEST_F(SetupFile, TorchtitanRunsFullyShardOnOneRank) {
  FitQuestion asked = question_of({{"method", "pp:4"}, {"loss", "hf"}});
  asked.model = "Qwen/Qwen3-14B";
  EXPECT_EQ(division_words(read_back(asked, "torchtitan")), ",fsdp2:1,pp:4");
  const auto emitted = emit_setup(asked, {"torchtitan", folder_ / "run.sh"});
  ASSERT_TRUE(emitted) << emitted.error().to_string();
  ASSERT_EQ(emitted->notes.size(), 1U);
  EXPECT_NE(emitted->notes[0].find("--method fsdp2:1,pp:4"), std::string::npos);
}

// Whichever parts a rank has, and where it is alone with its share.
TEST_F(SetupFile, TorchtitanReadsBackStages) {
  for (const auto& [method, schedule] : {std::pair("fsdp2:1,pp:8", "1f1b"),
                                         {"fsdp2:1,pp:4", "gpipe"},
                                         {"fsdp2:4,pp:2,vpp:3", "1f1b"},
                                         {"fsdp2:1,pp:2,vpp:7", "zero-bubble"},
                                         {"fsdp2:2,pp:4", "zbv"}}) {
    FitQuestion asked =
        question_of({{"method", method}, {"pipeline-schedule", schedule}, {"loss", "hf"}});
    asked.model = "Qwen/Qwen3-14B";
    const FitQuestion read = read_back(asked, "torchtitan");
    EXPECT_EQ(division_words(read).substr(0, division_words(asked).size()), division_words(asked));
    EXPECT_EQ(read.schedule, asked.schedule) << method;
  }
  FitQuestion tensor = question_of({{"method", "fsdp2:1,tp:8"}, {"sequence-parallel", "true"}});
  tensor.model = "Qwen/Qwen3-14B";
  EXPECT_EQ(division_words(read_back(tensor, "torchtitan")), ",fsdp2:1,tp:8");
}

// Each emitted file, read back, gives the same setting.
TEST_F(SetupFile, AccelerateReadsBack) {
  for (const char* method : {"full", "ddp:8", "fsdp1:8", "fsdp2:8", "fsdp2:4,replicate:4"}) {
    for (const char* precision : {"none", "bf16", "fp16"}) {
      for (const char* checkpointing : {"none", "full"}) {
        const FitQuestion asked = question_of(
            {{"method", method}, {"mixed-precision", precision}, {"checkpointing", checkpointing}});
        const FitQuestion read = read_back(asked, "accelerate");
        EXPECT_EQ(read.division, asked.division);
        EXPECT_EQ(read.ranks, asked.ranks);
        EXPECT_EQ(read.replicas, asked.replicas);
        EXPECT_EQ(shards_ends(read), asked.division == Division::fsdp2);
        EXPECT_EQ(read.mixed_precision, asked.mixed_precision);
        if (std::string(method).starts_with("fsdp")) {
          EXPECT_EQ(read.checkpointing, asked.checkpointing) << method;
        }
      }
    }
  }
}

TEST_F(SetupFile, AccelerateReadsBackWhatIsCompiled) {
  for (const char* compile : {"none", "layers", "model"}) {
    const FitQuestion asked = question_of({{"method", "full"}, {"compile", compile}});
    EXPECT_EQ(read_back(asked, "accelerate").compile, asked.compile) << compile;
    const auto emitted = emit_setup(asked, {"accelerate", folder_ / "x.yaml"});
    ASSERT_TRUE(emitted);
    EXPECT_EQ(std::ranges::count(emitted->by_hand, "compile"), 0) << compile;
  }
  const auto emitted = emit_setup(question_of({{"method", "full"}, {"compile", "layers,loss"}}),
                                  {"accelerate", folder_ / "x.yaml"});
  ASSERT_TRUE(emitted);
  EXPECT_EQ(std::ranges::count(emitted->by_hand, "compile"), 1);
}

TEST_F(SetupFile, ZeroReadsBackFromBoth) {
  for (const char* method : {"zero1:8", "zero2:16", "zero3:8"}) {
    const FitQuestion asked = question_of({{"method", method},
                                           {"dtype", "fp16"},
                                           {"batch", "3"},
                                           {"grad-accum", "4"},
                                           {"clip", "0.5"},
                                           {"nodes", "2"},
                                           {"reduce-bucket-size", "1000000"},
                                           {"overlap-comm", "true"}});
    for (const char* kind : {"accelerate", "deepspeed"}) {
      const FitQuestion read = read_back(asked, kind);
      EXPECT_EQ(read.division, asked.division);
      EXPECT_EQ(read.ranks, asked.ranks);
      EXPECT_EQ(read.dtype, asked.dtype);
      EXPECT_EQ(read.grad_accum, asked.grad_accum);
      EXPECT_EQ(read.clip, asked.clip);
    }
    const FitQuestion read = read_back(asked, "deepspeed");
    EXPECT_EQ(read.batch, 3);
    EXPECT_EQ(read.reduce_bucket_size, 1'000'000);
    EXPECT_EQ(read.overlap_comm, true);
  }
}

TEST_F(SetupFile, MixedPrecisionBesideZeroReadsBackAsDeepSpeedsType) {
  for (const char* type : {"bf16", "fp16"}) {
    const FitQuestion asked = question_of({{"method", "zero3:8"}, {"mixed-precision", type}});
    for (const char* kind : {"accelerate", "deepspeed"}) {
      const FitQuestion read = read_back(asked, kind);
      EXPECT_EQ(read.mixed_precision, MixedPrecision::none) << kind;
      EXPECT_EQ(setting_of(settings_of(read), "dtype"), type) << kind;
    }
  }
}

// With what only the third stage has, and what is on the CPU, on one GPU too.
TEST_F(SetupFile, TheThirdStageReadsBack) {
  for (const char* offload : {"none", "optimizer", "parameters", "optimizer,parameters"}) {
    for (const char* method : {"zero3:8", "zero3:1"}) {
      const FitQuestion asked = question_of({{"method", method},
                                             {"offload", offload},
                                             {"reduce-bucket-size", "auto"},
                                             {"stage3-prefetch-bucket-size", "0"},
                                             {"stage3-param-persistence-threshold", "auto"},
                                             {"stage3-max-live-parameters", "300000000"},
                                             {"sub-group-size", "100000000"}});
      for (const char* kind : {"accelerate", "deepspeed"}) {
        const FitQuestion read = read_back(asked, kind);
        EXPECT_EQ(read.division, asked.division);
        EXPECT_EQ(read.ranks, asked.ranks);
        EXPECT_EQ(read.offload, asked.offload) << kind;
        if (kind == std::string("accelerate")) continue;
        EXPECT_EQ(read.reduce_bucket_size, kOfHiddenSize);
        EXPECT_EQ(read.stage3, asked.stage3);
      }
    }
  }
}

TEST_F(SetupFile, SharesInTheHostsMemoryReadBack) {
  for (const char* method : {"fsdp1:8", "fsdp2:8"}) {
    for (const char* offload : {"none", "parameters"}) {
      const FitQuestion asked = question_of({{"method", method}, {"offload", offload}});
      EXPECT_EQ(read_back(asked, "accelerate").offload, asked.offload) << method << offload;
      const auto emitted = emit_setup(asked, {"accelerate", folder_ / "x.yaml"});
      ASSERT_TRUE(emitted);
      EXPECT_TRUE(emitted->by_hand.empty()) << method << offload;
    }
  }
}

// What accelerate's file cannot say is left to the script.
TEST_F(SetupFile, CountsOfTheThirdStageAreNoneOfAccelerates) {
  const auto emitted =
      emit_setup(question_of({{"method", "zero3:8"}, {"stage3-max-live-parameters", "300000000"}}),
                 {"accelerate", folder_ / "x.yaml"});
  ASSERT_TRUE(emitted);
  EXPECT_EQ(emitted->by_hand, (std::vector<std::string>{"stage3-max-live-parameters"}));
}

// accelerate's loop adds whole gradients up; who does not want that says so in the script.
TEST_F(SetupFile, AcceleratesAccumulationIsItsOwn) {
  const FitQuestion asked = question_of({{"method", "fsdp2:8"}, {"grad-accum", "4"}});
  EXPECT_EQ(read_back(asked, "accelerate").sync_each_batch, false);
  const auto emitted = emit_setup(asked, {"accelerate", folder_ / "x.yaml"});
  ASSERT_TRUE(emitted);
  EXPECT_EQ(emitted->by_hand, (std::vector<std::string>{"grad-accum", "sync-each-batch"}));
}

TEST_F(SetupFile, AFileAndWhatIsTrainedComeTogether) {
  const auto flags =
      flags_of_setup("distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n",
                     "a.yaml", {.method = "lora", .gpus = std::nullopt, .read = {}});
  ASSERT_TRUE(flags) << flags.error().to_string();
  EXPECT_EQ(flags->flags.front(), (FlagWords{"method", "lora,fsdp2:8"}));
}

TEST_F(SetupFile, WithoutANumberOfGpusThereIsNoAnswer) {
  const std::string zero = R"({"zero_optimization": {"stage": 2}})";
  const auto flags = flags_of_setup(zero, "ds.json");
  ASSERT_FALSE(flags);
  EXPECT_NE(flags.error().message.find("GPUs"), std::string::npos);
  // Each kind of file has names of its own for it.
  const auto hint = [](const std::string& content) {
    const auto read = flags_of_setup(content, "file");
    EXPECT_FALSE(read) << content;
    return read ? "" : read.error().hint;
  };
  EXPECT_EQ(hint(zero),
            "--gpus N beside it does; or train_batch_size, train_micro_batch_size_per_gpu and "
            "gradient_accumulation_steps together");
  EXPECT_EQ(hint("python -m torchtitan.train --module llama3 --config llama3_8b"),
            "--gpus N beside it does; or torchrun --nproc_per_node N in the script");
  const std::string fsdp = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n";
  EXPECT_EQ(hint(fsdp), "--gpus N beside it does; or num_processes in it");
  EXPECT_EQ(hint("output_dir: o\nfsdp: full_shard\n"),
            "--gpus N beside it does; or torchrun --nproc_per_node N in a script");
  EXPECT_EQ(flags_of_setup(fsdp, "a.yaml", {.method = "", .gpus = 8, .read = {}})->flags.front(),
            (FlagWords{"method", "fsdp2:8"}));
  const auto beside = flags_of_setup(zero, "ds.json", {.method = "", .gpus = 8, .read = {}});
  EXPECT_EQ(beside->flags.front(), (FlagWords{"method", "zero2:8"}));
}

// Each flag is one that the question takes.
TEST_F(SetupFile, TheTrainersArgumentsAreAQuestion) {
  HEADROOM_CHECK(write_file_atomic(folder_ / "ds.json", R"({"zero_optimization": {"stage": 2},
      "bf16": {"enabled": "auto"}})"),
                 "a folder of our own");
  const auto setup = flags_of_setup(
      "model_name_or_path: a/b\noutput_dir: o\nper_device_train_batch_size: 4\nbf16: true\n"
      "optim: paged_adamw_8bit\nattn_implementation: sdpa\nuse_peft: true\nload_in_4bit: true\n"
      "lora_r: 8\nlora_target_modules: [q_proj, v_proj]\ngradient_checkpointing: true\n"
      "gradient_checkpointing_kwargs:\n  every_n_layers: 2\nuse_liger_kernel: true\n"
      "max_length: 512\n",
      folder_ / "sft.yaml");
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->model, "a/b");
  FitQuestion question;
  for (const auto& [name, words] : setup->flags) EXPECT_TRUE(question.set(name, words)) << name;
  EXPECT_EQ(question.method, Method::qlora);
  EXPECT_EQ(question.optimizer, Optimizer::paged_adamw_8bit);
  EXPECT_EQ(question.attention, Attention::sdpa);
  EXPECT_EQ(question.kernels, Kernels::liger);
  EXPECT_EQ(question.kbit_preparation, KbitPreparation::norms);
  EXPECT_EQ(question.checkpointing.every, 2);
  EXPECT_EQ(question.seq, 512);
  EXPECT_EQ(question.lora_targets.size(), 2);
  EXPECT_TRUE(question.accelerate);
  EXPECT_FALSE(question.keep_outputs);
  // Of several GPUs, without a word of how: DistributedDataParallel.
  const std::string plain = "output_dir: o\n";
  EXPECT_EQ(flags_of_setup(plain, "t.yaml", {.method = "", .gpus = 4, .read = {}})->flags.front(),
            (FlagWords{"method", "ddp:4"}));
  // A file that it names is read from where it lies.
  const auto zero = flags_of_setup(plain + "deepspeed: ds.json\n", folder_ / "sft.yaml",
                                   {.method = "", .gpus = 8, .read = {}});
  ASSERT_TRUE(zero) << zero.error().to_string();
  EXPECT_EQ(zero->flags.front(), (FlagWords{"method", "zero2:8"}));
  // What DeepSpeed makes half precision is prepared for nothing.
  const auto quantized =
      flags_of_setup(plain + "use_peft: true\nload_in_4bit: true\nbf16: true\ndeepspeed: ds.json\n",
                     folder_ / "sft.yaml", {.method = "", .gpus = 8, .read = {}});
  ASSERT_TRUE(quantized) << quantized.error().to_string();
  EXPECT_EQ(quantized->flags.front(), (FlagWords{"method", "qlora,zero2:8"}));
  for (const auto& [name, words] : quantized->flags) EXPECT_NE(name, "kbit-preparation");
  EXPECT_FALSE(flags_of_setup(plain + "deepspeed: none.json\n", folder_ / "sft.yaml"));
  EXPECT_FALSE(flags_of_setup(plain + "optim: galore_adamw\n", "t.yaml"));
}

FitQuestion question_from(const std::string& yaml, std::optional<int64_t> gpus = {}) {
  const auto setup = flags_of_setup(yaml, "a.yaml", {.method = "", .gpus = gpus, .read = {}});
  EXPECT_TRUE(setup) << setup.error().to_string();
  FitQuestion question;
  if (!setup) return question;
  for (const auto& [name, words] : setup->flags) EXPECT_TRUE(question.set(name, words)) << name;
  return question;
}

// So that the answer is the one that flags give.
void expect_asks(FitQuestion read, FitQuestion asked) {
  read.given.clear();
  asked.given.clear();
  EXPECT_EQ(read, asked);
}

TEST_F(SetupFile, OptimizersGoByTransformersNames) {
  for (const auto& [name, optimizer] : {std::pair{"lion_8bit", Optimizer::lion_8bit},
                                        {"paged_lion_32bit", Optimizer::paged_lion},
                                        {"paged_adamw_32bit", Optimizer::paged_adamw},
                                        {"paged_ademamix_8bit", Optimizer::paged_ademamix_8bit},
                                        {"ademamix", Optimizer::ademamix},
                                        {"rmsprop_bnb_32bit", Optimizer::rmsprop_bnb}}) {
    const auto setup = flags_of_setup(
        std::string("output_dir: o\nper_device_train_batch_size: 4\noptim: ") + name + "\n",
        folder_ / "sft.yaml");
    ASSERT_TRUE(setup) << setup.error().to_string();
    FitQuestion question;
    for (const auto& [flag, words] : setup->flags) EXPECT_TRUE(question.set(flag, words)) << flag;
    EXPECT_EQ(question.optimizer, optimizer) << name;
  }
  // transformers has no such name.
  EXPECT_FALSE(flags_of_setup("output_dir: o\noptim: paged_adamw\n", folder_ / "sft.yaml"));
}

TEST_F(SetupFile, LlamaFactorysArgumentsAreAQuestion) {
  const std::string model =
      "model_name_or_path: a/b\ndo_train: true\nstage: sft\ncutoff_len: 4096\nbf16: true\n"
      "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n";
  const auto asked = [](std::initializer_list<std::pair<const char*, const char*>> more) {
    FitQuestion question = question_of({{"seq", "4096"},
                                        {"batch", "2"},
                                        {"grad-accum", "4"},
                                        {"clip", "1"},
                                        {"optimizer", "adamw-fused"},
                                        {"checkpointing", "full"},
                                        {"checkpointing-kind", "reentrant"},
                                        {"mixed-precision", "bf16"},
                                        {"accelerate", "true"},
                                        {"keep-outputs", "false"}});
    for (const auto& [name, words] : more) EXPECT_TRUE(question.set(name, words)) << name;
    return question;
  };
  expect_asks(question_from(model + "lora_rank: 16\nlora_dropout: 0.05\nflash_attn: fa2\n"),
              asked({{"method", "lora"},
                     {"lora-rank", "16"},
                     {"lora-targets", "all-linear"},
                     {"lora-dropout", "0.05"},
                     {"dtype", "bf16"},
                     {"attention", "flash2"}}));
  expect_asks(question_from(model + "quantization_bit: 4\nlora_target: q_proj,v_proj\n", 4),
              asked({{"method", "qlora,ddp:4"},
                     {"lora-rank", "8"},
                     {"lora-targets", "q_proj,v_proj"},
                     {"dtype", "bf16"},
                     {"kbit-preparation", "none"},
                     {"allocator", "expandable_segments:True"}}));
  expect_asks(question_from(model + "finetuning_type: full\nenable_liger_kernel: true\n"),
              asked({{"method", "full"}, {"dtype", "fp32"}, {"kernels", "liger"}}));
  expect_asks(question_from(model + "use_dora: true\nfsdp: full_shard auto_wrap\n"
                                    "fsdp_config:\n  version: 1\n",
                            8),
              asked({{"method", "dora,fsdp1:8"},
                     {"lora-rank", "8"},
                     {"lora-targets", "all-linear"},
                     {"dtype", "bf16"},
                     {"sync-each-batch", "false"},
                     {"allocator", "expandable_segments:True"}}));
  EXPECT_EQ(question_from(model + "use_reentrant_gc: false\n").reentrant, false);
  EXPECT_EQ(question_from(model + "fsdp: full_shard\n", 8).reentrant, false);
  const auto misspelt = flags_of_setup(model + "lora_rnak: 64\n", "a.yaml");
  ASSERT_TRUE(misspelt);
  EXPECT_EQ(std::ranges::count(misspelt->notes,
                               "lora_rnak is no argument of LLaMA-Factory's: lora_rank?"),
            1);
  const auto all = [](const std::string& note) { return note.find("--gpus N") != note.npos; };
  EXPECT_EQ(std::ranges::count_if(misspelt->notes, all), 1);
  const auto counted = flags_of_setup(model, "a.yaml", {.method = "", .gpus = 2, .read = {}});
  ASSERT_TRUE(counted);
  EXPECT_EQ(std::ranges::count_if(counted->notes, all), 0);
}

TEST_F(SetupFile, AxolotlsConfigurationIsAQuestion) {
  const std::string model =
      "base_model: a/b\ndatasets:\n  - path: c/d\n    type: alpaca\nsequence_len: 2048\n"
      "sample_packing: true\nmicro_batch_size: 2\nflash_attention: true\n"
      "gradient_checkpointing: true\noptimizer: adamw_bnb_8bit\n";
  const auto asked = [](std::initializer_list<std::pair<const char*, const char*>> more) {
    FitQuestion question = question_of({{"seq", "2048"},
                                        {"batch", "2"},
                                        {"grad-accum", "1"},
                                        {"clip", "1"},
                                        {"optimizer", "adamw-8bit"},
                                        {"attention", "flash2"},
                                        {"checkpointing", "full"},
                                        {"checkpointing-kind", "reentrant"},
                                        {"allocator", "expandable_segments:True"},
                                        {"dtype", "bf16"},
                                        {"mixed-precision", "bf16"},
                                        {"accelerate", "true"},
                                        {"keep-outputs", "false"}});
    for (const auto& [name, words] : more) EXPECT_TRUE(question.set(name, words)) << name;
    return question;
  };
  expect_asks(question_from(model), asked({{"method", "full"}}));
  expect_asks(question_from(model + "adapter: qlora\nload_in_4bit: true\nlora_r: 32\n"
                                    "lora_target_linear: true\nplugins:\n"
                                    "  - axolotl.integrations.liger.LigerPlugin\nliger_rope: true\n"
                                    "liger_rms_norm: true\nliger_glu_activation: true\n"
                                    "liger_fused_linear_cross_entropy: true\n"),
              asked({{"method", "qlora"},
                     {"lora-rank", "32"},
                     {"lora-targets", "all-linear"},
                     {"kbit-preparation", "others"},
                     {"kernels", "liger"},
                     {"loss", "fused-linear"}}));
  expect_asks(question_from(model + "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n", 8),
              asked({{"method", "full,fsdp2:8"},
                     {"offload", "parameters"},
                     {"shard-ends", "true"},
                     {"sync-each-batch", "false"}}));
  const std::string kwargs = "gradient_checkpointing_kwargs:\n  use_reentrant: false\n";
  EXPECT_EQ(question_from(model + kwargs).reentrant, false);
  EXPECT_EQ(question_from("\xEF\xBB\xBF" + model).seq, 2048);  // a byte order mark
  // Places are named as the file has them.
  const auto flex = flags_of_setup(model + "xformers_attention: true\n", "a.yaml");
  ASSERT_FALSE(flex);
  EXPECT_EQ(flex.error().where, "a.yaml#/xformers_attention");
  const auto muon =
      flags_of_setup("base_model: a/b\nadapter:\noptimizer: muon\nbf16: false\n", "a.yaml");
  ASSERT_FALSE(muon);
  EXPECT_EQ(muon.error().where, "a.yaml#/optimizer");
}

// LLaMA-Factory and axolotl have their paths from where they are started.
TEST_F(SetupFile, AFileIsNamedFromWhereProgramsAreStarted) {
  std::filesystem::create_directories(folder_ / "examples");
  HEADROOM_CHECK(write_file_atomic(folder_ / "ds.json", R"({"zero_optimization": {"stage": 2}})"),
                 "a folder of our own");
  const std::string yaml = "output_dir: o\ndeepspeed: ds.json\n";
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const auto read =
      flags_of_setup(yaml, "examples/sft.yaml", {.method = "", .gpus = 8, .read = {}});
  std::filesystem::current_path(before);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->flags.front(), (FlagWords{"method", "zero2:8"}));
}

// accelerate launch reads its file before the script runs.
TEST_F(SetupFile, ALaunchersFileIsReadBesideTheScript) {
  const auto flags_of = [&](const std::string& yaml, const std::string& words) {
    HEADROOM_CHECK(write_file_atomic(folder_ / "launch.yaml", yaml), "a folder of our own");
    const std::string script = "accelerate launch --config_file launch.yaml " + words +
                               " sft.py --output_dir o --use_peft --load_in_4bit\n";
    const auto read = flags_of_setup(script, folder_ / "sft.sh");
    EXPECT_TRUE(read) << read.error().to_string();
    return read ? read->flags : std::vector<FlagWords>{};
  };
  const auto has = [](const std::vector<FlagWords>& flags, const FlagWords& one) {
    return std::ranges::find(flags, one) != flags.end();
  };
  const std::string fsdp =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_activation_checkpointing: true\nmixed_precision: bf16\nnum_processes: 4\n";
  const auto sharded = flags_of(fsdp, "");
  EXPECT_TRUE(has(sharded, {"method", "qlora,fsdp2:4"}));
  EXPECT_TRUE(has(sharded, {"mixed-precision", "bf16"}));
  EXPECT_TRUE(has(sharded, {"checkpointing", "full"}));
  EXPECT_TRUE(has(sharded, {"shard-ends", "true"}));
  EXPECT_TRUE(has(flags_of(fsdp, "--num_processes 8"), {"method", "qlora,fsdp2:8"}));
  const std::string zero =
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
      "mixed_precision: bf16\nnum_processes: 2\n";
  EXPECT_TRUE(has(flags_of(zero, ""), {"method", "qlora,zero3:2"}));
  EXPECT_TRUE(has(flags_of("distributed_type: MULTI_GPU\nnum_processes: 2\n", ""),
                  {"method", "qlora,ddp:2"}));
  const auto twice =
      flags_of_setup(fsdp, "a.yaml", {.method = "qlora,fsdp2:4", .gpus = {}, .read = {}});
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().hint.find("(qlora)"), std::string::npos);
  EXPECT_FALSE(flags_of_setup("accelerate launch --config_file none.yaml a --output_dir o\n",
                              folder_ / "sft.sh"));
}

TEST_F(SetupFile, WhatFourBitsNeedOfTheScriptIsSaid) {
  const auto emitted =
      emit_setup(question_of({{"method", "qlora,fsdp2:4"}}), {"accelerate", folder_ / "x.yaml"});
  ASSERT_TRUE(emitted) << emitted.error().to_string();
  EXPECT_EQ(emitted->by_hand.front(), "method");
  ASSERT_FALSE(emitted->notes.empty());
  EXPECT_NE(emitted->notes.back().find("bnb_4bit_quant_storage"), std::string::npos);
}

TEST_F(SetupFile, WhatCannotBeWrittenIsRefused) {
  EXPECT_FALSE(parse_emit("fairseq"));
  EXPECT_FALSE(parse_emit("accelerate=-"));
  EXPECT_FALSE(parse_emit("accelerate="));
  EXPECT_EQ(parse_emit("accelerate")->file, "accelerate.yaml");
  EXPECT_EQ(parse_emit("deepspeed=x.json")->file, "x.json");
  EXPECT_FALSE(emit_setup(question_of({{"method", "ddp:8"}}), {"deepspeed", folder_ / "x"}));
  EXPECT_FALSE(
      emit_setup(question_of({{"method", "fsdp1:4,replicate:2"}}), {"accelerate", folder_ / "x"}));
}

TEST_F(SetupFile, WhatWasReadIsNotWrittenOver) {
  const std::string file = folder_ / "t4.sh";
  HEADROOM_CHECK(write_file_atomic(file, "torchrun"), "a folder of our own");
  const std::string other_way = folder_ / "." / "t4.sh";
  for (const char* kind : {"accelerate", "deepspeed", "megatron", "torchtitan"}) {
    for (const std::string& to : {file, other_way}) {
      const auto emits = parse_emits({std::string(kind) + "=" + to}, file);
      ASSERT_FALSE(emits) << kind << to;
      EXPECT_EQ(emits.error().message, "is what the setting was read from");
    }
    EXPECT_FALSE(parse_emits({std::string(kind) + "=none.sh"}, "none.sh")) << kind;
    EXPECT_TRUE(parse_emits({std::string(kind) + "=" + file}, "")) << kind;
  }
  const auto both = parse_emits({"accelerate=a.yaml", "deepspeed"}, file);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->size(), 2);
  EXPECT_EQ(both->back().file, "ds_config.json");
  EXPECT_FALSE(parse_emits({"accelerate=a", "deepspeed=a"}, file));
}

TEST_F(SetupFile, APlanIsOfNoFile) {
  FitQuestion asked =
      question_of({{"method", "fsdp2:8"}, {"shard-ends", "true"}, {"allocator", "planned"}});
  asked.model = "Qwen/Qwen3-14B";
  const auto emitted = emit_setup(asked, {"torchtitan", folder_ / "run.sh"});
  ASSERT_TRUE(emitted) << emitted.error().to_string();
  EXPECT_EQ(emitted->notes, std::vector<std::string>{std::string(kNoPlan)});
  EXPECT_EQ(std::ranges::count(emitted->by_hand, "allocator"), 0);
  EXPECT_EQ(read_file(emitted->file, kMostSetup)->find("ALLOC_CONF"), std::string::npos);
}

TEST_F(SetupFile, WhatTheScriptHasToSayIsSaid) {
  const auto emitted = emit_setup(question_of({{"method", "ddp:8"},
                                               {"checkpointing", "selective"},
                                               {"optimizer", "lion"},
                                               {"grad-accum", "2"}}),
                                  {"accelerate", folder_ / "x.yaml"});
  ASSERT_TRUE(emitted);
  EXPECT_EQ(emitted->by_hand,
            (std::vector<std::string>{"checkpointing", "optimizer", "grad-accum"}));
  EXPECT_EQ(emitted->command,
            "accelerate launch --config_file " + (folder_ / "x.yaml").string() + " train.py");
}

}  // namespace
}  // namespace headroom::fit
