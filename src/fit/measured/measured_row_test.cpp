#include "fit/measured/measured_row.h"

#include <gtest/gtest.h>

namespace headroom::fit {
namespace {

constexpr const char* kHeader =
    "id,scope,model,method,weights_dtype,mixed_precision,optimizer,micro_batch,seq_len,grad_accum,"
    "act_ckpt,attention,loss_impl,framework,gpu,n_gpus,metric,value_bytes,alloc_after_step_bytes,"
    "nvidia_smi_mib,notes\n";

text::CsvTable table_of(const std::string& row) {
  return text::read_csv(std::string(kHeader) + row + "\n", "test.csv").value();
}

TEST(MeasuredRow, ReadsTheWordsOfARow) {
  const auto table = table_of(
      "1,train_step,org/model,\"LoRA r=8 targets=['q_proj', 'v_proj']\",bfloat16,none (pure),AdamW,"
      "4,2048,2,full (x),flash_attention_2,HF CE,HF Trainer,A100-80GB,1,max_memory_allocated,1000,"
      "500,2,torch 2.4.1 transformers 4.48.1");
  const auto question = question_of(table, 0);
  ASSERT_TRUE(question) << question.error().to_string();
  EXPECT_EQ(question->method, Method::lora);
  EXPECT_EQ(question->lora_rank, 8);
  EXPECT_EQ(question->batch, 4);
  EXPECT_EQ(question->seq, 2048);
  EXPECT_EQ(question->grad_accum, 2);
  EXPECT_EQ(question->checkpointing.kind, CheckpointingKind::full);
  EXPECT_EQ(question->attention, Attention::flash2);
  EXPECT_FALSE(question->keep_outputs);
  EXPECT_EQ(question->torch, "2.4.1");
  EXPECT_EQ(question->transformers, "4.48.1");

  const auto figures = figures_of(table, 0);
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_EQ(figures[0].metric, Metric::peak_allocated);
  EXPECT_EQ(figures[1].value, Bytes(500));
  EXPECT_EQ(figures[2].value, Bytes(2 * kMiB));
}

TEST(MeasuredRow, KnowsWhichKindOfCheckpoint) {
  const auto kind = [](const std::string& words) {
    const auto question = question_of(
        table_of("1,train_step,NousResearch/Llama-2-70b-hf,full,bfloat16,none,AdamW,4,2048,1," +
                 words + ",sdpa,HF CE,,A100-80GB,1,max_memory_allocated,1,,,"),
        0);
    EXPECT_TRUE(question) << words;
    return question ? question->reentrant : std::nullopt;
  };
  EXPECT_EQ(kind("full"), std::nullopt);
  EXPECT_EQ(kind("full (reentrant)"), true);
  EXPECT_EQ(kind("full (use_reentrant=False)"), false);
  EXPECT_EQ(kind("full (non-reentrant)"), false);
}

// A name within another's is not that other.
TEST(MeasuredRow, RefusesWhatOnlySoundsLikeAnotherOptimizer) {
  const auto asked = [](const std::string& optimizer, const std::string& method) {
    return question_of(
        table_of("1,train_step,NousResearch/Llama-2-70b-hf," + method + ",bfloat16,none," +
                 optimizer + ",4,2048,1,none,sdpa,HF CE,,A100-80GB,1,max_memory_allocated,1,,,"),
        0);
  };
  const auto momentum = asked("SGD momentum", "full");
  ASSERT_TRUE(momentum) << momentum.error().to_string();
  EXPECT_EQ(momentum->optimizer, Optimizer::sgd_momentum);
  EXPECT_EQ(momentum->model, "meta-llama/Llama-2-70b-hf");
  EXPECT_EQ(asked("paged AdamW 8bit", "full")->optimizer, Optimizer::paged_adamw_8bit);
  EXPECT_EQ(asked("adamw_torch_fused", "full")->optimizer_loop, OptimizerLoop::fused);
  for (const char* other : {"GaLore AdamW", "Adam-mini", "schedule-free AdamW", "Lion 8bit"}) {
    EXPECT_FALSE(asked(other, "full")) << other;
  }
  for (const char* other : {"QLoRA 8bit r=8", "LoRA int8 r=8", "full fine-tune last 4 layers"}) {
    EXPECT_FALSE(asked("AdamW", other)) << other;
  }
}

TEST(MeasuredRow, SaysHowAStepIsDivided) {
  const auto asked = [](const std::string& parallelism) {
    const std::string header = "parallelism," + std::string(kHeader);
    return question_of(
        text::read_csv(header + parallelism +
                           ",1,train_step,org/model,full,bfloat16,none,AdamW,4,2048,1,none,sdpa,"
                           "HF CE,HF Trainer,A100-80GB,4,max_memory_allocated,1,,,\n",
                       "test.csv")
            .value(),
        0);
  };
  EXPECT_EQ(asked("DDP")->division, fit::Division::ddp);
  EXPECT_EQ(asked("ZeRO-2")->division, fit::Division::zero2);
  EXPECT_EQ(asked("ZeRO-3")->division, fit::Division::zero3);
  EXPECT_EQ(asked("FSDP2")->ranks, 4);
  EXPECT_EQ(asked("FSDP1 FULL_SHARD")->division, fit::Division::fsdp1);
  EXPECT_NE(asked("magic").error().message.find("magic"), std::string::npos);
}

// A row whose state is partly in the host's memory is never answered as if it were not.
TEST(MeasuredRow, SaysWhatIsOffloaded) {
  const auto asked = [](const std::string& parallelism, const std::string& offload) {
    const std::string header = "parallelism,cpu_offload," + std::string(kHeader);
    return question_of(
        text::read_csv(header + parallelism + "," + offload +
                           ",1,train_step,org/model,full,bfloat16,none,AdamW,4,2048,1,none,sdpa,"
                           "HF CE,HF Trainer,A100-80GB,4,max_memory_allocated,1,,,\n",
                       "test.csv")
            .value(),
        0);
  };
  EXPECT_EQ(asked("ZeRO-2", "none")->offload, fit::Offload::none);
  EXPECT_EQ(asked("ZeRO-2", "optimizer")->offload, fit::Offload::optimizer);
  EXPECT_EQ(asked("ZeRO-3 offload", "params+optimizer")->offload,
            fit::Offload::optimizer_and_parameters);
  EXPECT_EQ(asked("FSDP2", "params+optimizer")->offload, fit::Offload::parameters);
  EXPECT_NE(asked("ZeRO-3 offload", "").error().message.find("does not say what"),
            std::string::npos);
  EXPECT_NE(asked("ZeRO-2", "activations").error().message.find("activations"), std::string::npos);
}

// torchtitan's pages: what of their parallelism is not modelled has its reason.
TEST(MeasuredRow, ReadsATorchtitanRun) {
  const auto asked = [](const std::string& framework, const std::string& parallelism,
                        const std::string& gpus = "8", const std::string& loss = "") {
    const std::string header = "parallelism," + std::string(kHeader);
    const std::string words =
        ",1,train run,Llama 3.1 8B,pre-training,\"fp32 sharded params, bf16 "
        "compute\",FSDP2,AdamW,2,"
        "8192,,selective (op),SDPA flash," +
        loss + ",";
    return question_of(text::read_csv(header + parallelism + words + framework + ",H100 96GB," +
                                          gpus + ",max reserved,1000,,,\n",
                                      "test.csv")
                           .value(),
                       0);
  };
  const auto eager = asked("torchtitan FSDP2 eager", "FSDP8");
  ASSERT_TRUE(eager) << eager.error().to_string();
  EXPECT_EQ(eager->division, fit::Division::fsdp2);
  EXPECT_EQ(eager->ranks, 8);
  EXPECT_EQ(eager->checkpointing.but_every, 2);
  EXPECT_EQ(eager->model, "meta-llama/Llama-3.1-8B");
  EXPECT_FALSE(eager->compile.any());
  const auto compiled = asked("torchtitan FSDP2 compile+float8", "FSDP8");
  ASSERT_TRUE(compiled) << compiled.error().to_string();
  EXPECT_EQ(compiled->compile, (step::CompiledParts{.layers = true}));
  EXPECT_EQ(compiled->float8, Float8::tensorwise);
  for (const auto& [words, sharding] :
       {std::pair{"always", step::Reshards::layers}, {"never", step::Reshards::none}}) {
    const auto said =
        asked(std::string("torchtitan FSDP2 eager reshard_after_forward ") + words, "FSDP8");
    ASSERT_TRUE(said) << said.error().to_string();
    EXPECT_EQ(said->reshards, sharding) << words;
  }
  const auto in_chunks = asked("torchtitan FSDP2 eager", "FSDP8", "8", "chunked cross entropy");
  EXPECT_EQ(in_chunks->loss, Loss::chunked);
  EXPECT_EQ(asked("torchtitan FSDP2 eager", "FSDP8", "8", "chunked head")->loss,
            Loss::chunked_head);
  EXPECT_FALSE(asked("torchtitan FSDP2 eager", "FSDP8", "8", "a loss of its own"));
  EXPECT_EQ(asked("torchtitan FSDP2 compile+float8 rowwise", "FSDP8")->float8, Float8::rowwise);
  const auto shared = asked("torchtitan FSDP2 eager", "FSDP4 CP2");
  ASSERT_TRUE(shared) << shared.error().to_string();
  EXPECT_EQ(shared->ranks, 4);
  EXPECT_EQ(shared->context_ranks, 2);
  const auto divided = asked("torchtitan FSDP2 compile+float8+AsyncTP", "FSDP2 TP2 PP2 1F1B");
  ASSERT_TRUE(divided) << divided.error().to_string();
  EXPECT_EQ(divided->tensor_ranks, 2);
  EXPECT_TRUE(divided->sequence_parallel);
  EXPECT_EQ(divided->stages, 2);
  EXPECT_EQ(divided->stage_chunks, 1);
  EXPECT_EQ(divided->batch, 1);  // of a micro-batch, of which there are as many as stages
  EXPECT_EQ(divided->grad_accum, 2);
  EXPECT_EQ(asked("torchtitan FSDP2 eager", "FSDP2 TP2 PP2 Interleaved 1F1B")->stage_chunks, 2);
  for (const auto& [framework, parallelism] : {std::pair{"torchtitan FSDP2 SimpleFSDP", "FSDP8"},
                                               {"torchtitan FSDP2 eager", "FSDP1 TP8"},
                                               {"torchtitan FSDP2 eager", "FSDP2 EP4"},
                                               {"torchtitan FSDP2 eager", "FSDP4 CP3"},
                                               {"torchtitan FSDP2 eager", "4 GPUs"}}) {
    EXPECT_FALSE(asked(framework, parallelism)) << framework << parallelism;
  }
  // 2^64 devices, more than 64 bits count: for UBSan.
  EXPECT_FALSE(asked("torchtitan FSDP2 eager", "FSDP65536 CP65536 TP65536 PP65536", "0"));
}

// Facts about one harness that its rows do not hold: the reader knows them by the source's name.
TEST(MeasuredRow, KnowsWhatAHarnessLeavesUnsaid) {
  const std::string header = std::string("source,") + kHeader;
  const std::string words =
      "1,train_step,org/model,LoRA r=8,bfloat16,none,Adafactor,4,2048,1,none,sdpa,HF CE,HF Trainer,"
      "A100-80GB,1,max_memory_allocated,1000,500,2,";
  const auto asked = [&](const std::string& source) {
    return question_of(text::read_csv(header + source + "," + words + "\n", "test.csv").value(), 0);
  };
  const auto benchmark = asked("fms-acceleration");
  ASSERT_TRUE(benchmark) << benchmark.error().to_string();
  EXPECT_EQ(benchmark->lora_dropout, 0.1);
  EXPECT_EQ(benchmark->optimizer, Optimizer::hf_adafactor);
  EXPECT_EQ(asked("another")->lora_dropout, 0);
}

TEST(MeasuredRow, ReadsWhoseKernelsARowRanWith) {
  const auto asked = [](const std::string& loss, const std::string& config,
                        const std::string& notes) {
    return question_of(
        table_of("1,train_step,m,LoRA r=8,bfloat16,none,AdamW,4,2048,1,none,sdpa," + loss +
                 ",HF Trainer; framework_config=" + config + ",A100,1,peak,1000,,," + notes),
        0);
  };
  const auto plain = asked("HF CE", "none", "");
  EXPECT_EQ(plain->kernels, Kernels::none);
  EXPECT_EQ(plain->loss, Loss::hf);
  const auto fast = asked("fused CE (foak)", "foak-fast-kernels", "");
  EXPECT_EQ(fast->kernels, Kernels::fast);
  EXPECT_EQ(fast->loss, Loss::fused);
  const auto linear =
      asked("fused CE (foak)", "foak-fast-kernels-liger", "see refs/requirements_liger.txt");
  EXPECT_EQ(linear->kernels, Kernels::fast);
  EXPECT_EQ(linear->loss, Loss::fused_linear);
  EXPECT_EQ(linear->transformers, "4.45.2");
}

TEST(MeasuredRow, AStepMayHaveATime) {
  const auto table = text::read_csv("id,step_seconds\n1,2.5\n2,\n3,-1\n4,soon\n", "t.csv");
  ASSERT_TRUE(table);
  EXPECT_EQ(step_seconds(*table, 0), 2.5);
  for (const size_t row : {1, 2, 3}) EXPECT_FALSE(step_seconds(*table, row)) << row;
}

TEST(MeasuredRow, SaysWhyARowCannotBeAsked) {
  struct Case {
    const char* row;
    const char* reason;
  };
  const Case cases[] = {
      {"1,train_step,m,full fine-tune,bf16,,AdamW,4,128,1,none,sdpa,,HF Trainer,A100,8,peak,1,,,",
       "8 GPUs"},
      {"1,train_step,m,FROD,bf16,,AdamW,4,128,1,none,sdpa,,HF Trainer,A100,1,peak,1,,,", "FROD"},
      {"1,train_step,m,full fine-tune,,,AdamW,4,128,1,none,sdpa,,HF Trainer,A100,1,peak,1,,,",
       "type of the weights"},
      {"1,train_step,m,full fine-tune,bf16,,AdamW,4,a few,1,none,sdpa,,x,A100,1,peak,1,,,",
       "a few"},
      {"1,train_step,m,full fine-tune,bf16,,AdamW,4,128,1,none,Unsloth+FA2,,LLaMA-Factory,A100,1,"
       "peak,1,,,",
       "Unsloth"},
      {"1,train_step,m,full fine-tune,bf16,,BAdam,4,128,1,none,sdpa,,x,A100,1,peak,1,,,", "BAdam"},
      {"1,train_step,m,full fine-tune,bf16,,AdamW,4,128,1,none,sdpa,,x,,1,peak,1,,,",
       "names no GPU"},
      {"1,train_step,m,,bf16,,AdamW,4,128,1,none,sdpa,,x,A100,1,peak,1,,,", "names no method"},
      {"1,op full,m,liger,bf16,,AdamW,4,128,1,none,sdpa,,x,A100,1,peak,1,,,", "op full"},
  };
  for (const Case& c : cases) {
    const auto question = question_of(table_of(c.row), 0);
    ASSERT_FALSE(question) << c.row;
    EXPECT_NE(question.error().message.find(c.reason), std::string::npos)
        << question.error().message;
  }
}

// Lengths up to a bound: the peak is of the longest batch, a mean over batches of the mean one.
TEST(MeasuredRow, ReadsARunOfManyLengths) {
  const std::string header = std::string("source,url,") + kHeader;
  const std::string url = "results/lora--llama-3.2-3B-rank32-dora.json";
  const auto table =
      text::read_csv(header + "peft-metamathqa," + url +
                         ",1,train+eval run,m,\"LORA r=32 targets=['q_proj', 'v_proj'] "
                         "trainable=77\",bfloat16,none; adapters fp32,AdamW,4,<=768 (bucketed),1,"
                         "none,HF default (sdpa),HF CE,x,L40S,1,max_memory_reserved,1000,500,,"
                         "alloc_after_step is mean after step with outputs alive\n",
                     "test.csv")
          .value();
  const auto question = question_of(table, 0);
  ASSERT_TRUE(question) << question.error().to_string();
  EXPECT_EQ(question->method, Method::dora);
  EXPECT_EQ(question->seq, 768);
  EXPECT_EQ(mean_sequence(table, 0), 210);
  EXPECT_EQ(trainable_count(table, 0), 77);
  const auto figures = figures_of(table, 0);
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[0].metric, Metric::peak_reserved);
  EXPECT_TRUE(figures[1].before_release);
}

TEST(MeasuredRow, FiguresThatAreNoNumbersAreLeftOut) {
  const auto table = table_of(
      "1,train_step,m,full fine-tune,bf16,,AdamW,4,128,1,none,sdpa,,x,A100,1,peak,nan,-5,1e300,");
  EXPECT_TRUE(figures_of(table, 0).empty());
}

}  // namespace
}  // namespace headroom::fit
