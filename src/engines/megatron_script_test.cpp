#include "engines/megatron_script.h"

#include <gtest/gtest.h>

namespace headroom::engines {
namespace {

MegatronArguments read(const std::string& content) {
  auto arguments = read_megatron_arguments(content, "run.sh");
  EXPECT_TRUE(arguments) << arguments.error().to_string() << "\n" << content;
  return arguments ? *arguments : MegatronArguments();
}

// Said once, and known by other words: what is of no matter is told of the file as it is.
MegatronArguments as_said(MegatronArguments a) {
  a.contradictions.clear();
  a.harmless.clear();
  if (a.program.empty()) a.program = a.decoder_layers > 0 ? "pretrain_t5.py" : "pretrain_gpt.py";
  a.ranks_per_node = a.ranks_per_node.value_or(1);
  if (a.rotary && a.longest == 0) a.longest = a.sequence;
  return a;
}

const std::string kSizes = "--hidden-size 64 --num-attention-heads 4 ";
const std::string kModel =
    "--num-layers 8 --seq-length 128 --max-position-embeddings 256 --vocab-size 1000 " + kSizes;

TEST(MegatronScript, WhatIsWrittenReadsBackTheSame) {
  for (
      const std::string& script :
      {kModel,
       kModel + "--bf16 --swiglu --normalization RMSNorm --disable-bias-linear --add-qkv-bias "
                "--use-rotary-position-embeddings --untie-embeddings-and-output-weights "
                "--max-position-embeddings 131072 --group-query-attention --num-query-groups 2 "
                "--kv-channels 32 --qk-layernorm",
       kModel + "--fp16 --position-embedding-type none --hidden-dropout 0.05 --attention-dropout 0 "
                "--make-vocab-size-divisible-by 64 --attention-backend unfused "
                "--deterministic-mode --accumulate-allreduce-grads-in-fp32",
       kModel +
           "--multi-latent-attention --q-lora-rank 32 --qk-layernorm --position-embedding-type "
           "rope --no-rope-fusion",
       kModel + "--multi-latent-attention --kv-lora-rank 16 --v-head-dim 24",
       kModel + "--transformer-impl local --no-masked-softmax-fusion --attention-softmax-in-fp32 "
                "--apply-query-key-layer-scaling --no-bias-gelu-fusion",
       kModel + "--position-embedding-type rope --no-rope-fusion --rotary-interleaved --swiglu "
                "--rotary-percent 0.25 --no-bias-dropout-fusion "
                "--no-bias-swiglu-fusion --cross-entropy-loss-fusion",
       kModel + "--num-experts 8 --moe-shared-expert-intermediate-size 48 "
                "--moe-shared-expert-gate --no-bias-gelu-fusion",
       kModel + "--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 "
                "--moe-grouped-gemm --moe-token-dispatcher-type alltoall "
                "--expert-tensor-parallel-size 1 --moe-ffn-hidden-size 96 "
                "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity",
       kModel + "--bf16 --fp8-format hybrid --fp8-amax-history-len 1024",
       kModel + "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --num-experts 8 --moe-grouped-gemm "
                "--moe-router-padding-for-quantization",
       "--num-layers 8 --seq-length 128 --position-embedding-type rope " + kSizes,
       kModel + "--bf16 --tensor-model-parallel-size 2 --sequence-parallel "
                "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 "
                "--context-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce "
                "--overlap-param-gather --num-distributed-optimizer-instances 2 "
                "--grad-reduce-in-bf16 --no-gradient-accumulation-fusion "
                "--no-create-attention-mask-in-dataloader --global-batch-size 64",
       kModel + "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
                "--decoder-first-pipeline-num-layers 2 --recompute-activations",
       kModel + "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
                "--account-for-loss-in-pipeline-split --decoder-last-pipeline-num-layers 3",
       kModel + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
                "'Ettt||(tt|)*2tL' --recompute-granularity full --recompute-method uniform "
                "--recompute-num-layers 1",
       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun --nproc-per-node 8 --nnodes 2 "
       "/opt/pretrain_t5.py --encoder-num-layers 4 --decoder-num-layers 2 --encoder-seq-length 128 "
       "--decoder-seq-length 64 --vocab-size 1000 --vocab-extra-ids 100 "
       "--max-position-embeddings 128 " +
           kSizes}) {
    const MegatronArguments first = read(script);
    const std::string written = megatron_script(first);
    EXPECT_EQ(as_said(read(written)), as_said(first)) << script << "\n" << written;
  }
}

TEST(MegatronScript, OtherArgumentsAreHandedOn) {
  const MegatronArguments a = read(
      "SAVE=$1\nLR=3e-4\nDATA=\"--split 99,1 --finetune\"\n"
      "torchrun --standalone --rdzv-id 7 --a-launchers-own $ROOT/pretrain_gpt.py " +
      kModel +
      "--tokenizer-type HuggingFaceTokenizer --lr $LR --save ${SAVE} --data-path 0.5 a 0.5 $CORPUS "
      "--load $SAVE/last --tensorboard-dir `date` --wandb-exp-name it --log-throughput "
      "${DATA[@]} --made-up $DATA --train-iters 10 2>&1 | tee log\n");
  const std::string written = megatron_script(a);
  const auto has = [&](const char* words) { return written.find(words) != std::string::npos; };
  EXPECT_TRUE(has("  --tokenizer-type HuggingFaceTokenizer\n"));
  EXPECT_TRUE(has("  --lr 3e-4\n"));
  EXPECT_TRUE(has("  --save \"${SAVE:?}\"\n"));
  EXPECT_TRUE(has("  --data-path 0.5 a 0.5 \"${CORPUS:?}\"\n"));
  EXPECT_TRUE(has("  --split 99,1\n"));
  EXPECT_TRUE(has("  --finetune\n"));
  EXPECT_TRUE(has("  --log-throughput\n"));
  EXPECT_TRUE(has("  --made-up\n"));
  EXPECT_TRUE(has("  --train-iters 10\n"));
  EXPECT_TRUE(has("  pretrain_gpt.py \"${MODEL_ARGS[@]}\"")) << written;
  for (const char* not_there :
       {"--load", "--tensorboard-dir", "standalone", "rdzv", "tee", "own"}) {
    EXPECT_FALSE(has(not_there)) << not_there << written;
  }
  std::vector<std::string> left;
  for (const OtherArgument& other : a.others) {
    if (!other.is_given) left.push_back(other.name);
  }
  EXPECT_EQ(left, (std::vector<std::string>{"load", "tensorboard-dir"}));
  // Handed on once more, all the same but for what was left out.
  EXPECT_EQ(megatron_script(read(written)), written);
}

// What is handed on of `more`, in one line, and then the names of what is not.
std::string handed_on(const std::string& more) {
  const MegatronArguments a = read(
      "W=\"0.3 /d/a 0.7 /d/b\"\nGLOB=/d/*.bin\nROOT=\"/mnt\"\n"
      "A=(0.5 a 0.5 b)\n"
      "torchrun pretrain_gpt.py " +
      kModel + more);
  const std::string written = megatron_script(a);
  const size_t from = written.find("OTHER_ARGS=(") + 12;
  std::string words = written.substr(from, written.find("\n)\n", from) - from);
  std::erase(words, '\n');
  for (const OtherArgument& other : a.others) {
    if (!other.is_given) words += " not " + other.name;
  }
  EXPECT_EQ(megatron_script(read(written)), written);
  return words;
}

TEST(MegatronScript, ValuesAreAsAShellHasThem) {
  EXPECT_EQ(handed_on("--data-path $W --save \"$ROOT\""),
            "  --data-path 0.3 /d/a 0.7 /d/b  --save /mnt");
  EXPECT_EQ(handed_on("--data-path \"${A[@]}\""), "  --data-path 0.5 a 0.5 b");
  EXPECT_EQ(handed_on("--log-option 'a|b' --project \"x*\" --empty \"\" --flag true"),
            "  --empty ''  --flag true  --log-option 'a|b'  --project 'x*'");
  EXPECT_EQ(handed_on("--lr 3 >log 2>&1"), "  --lr 3");
  EXPECT_EQ(handed_on("--lr 3 2>&1 | tee log"), "  --lr 3");
  EXPECT_EQ(handed_on("--log-it $@"), "  --log-it");
  EXPECT_EQ(handed_on("--hook hook.py --lr 3"), "  --hook hook.py  --lr 3");
}

TEST(MegatronScript, WhatTakesMoreOfAShellIsNamed) {
  for (const char* value :
       {"\"$ROOT\"/ckpt", "$ROOT/ckpt", "\"my run\"", "my\\ run",   "~/tb",      "/d/*.bin",
        "$GLOB",          "/d/{a,b}",   "a$ROOT",     "\"$W\"",     "a|b",       "`date`",
        "\\$ROOT",        "/d/[ab]",    "'a;b'",      "${NONE[@]}", "${X:-a;b}", "${X:-a,}",
        "${X-a}",         "a='b c'",    "${X:-A=b}",  "a b\"c\"",   "\"\"x"}) {
    EXPECT_EQ(handed_on("--save " + std::string(value)), " not save") << value;
    EXPECT_EQ(handed_on("--save=" + std::string(value) + " --lr 3"), "  --lr 3 not save") << value;
  }
}

TEST(MegatronScript, WhatStandsBeforeTheProgramIsItsLaunchers) {
  for (const char* launcher : {"srun --container-image=foo.sqsh --container-mounts /a:/b torchrun ",
                               "docker run --gpus all --rm -it --shm-size=1g img torchrun ",
                               "LAUNCH=(--made-up 1)\ntorchrun ${LAUNCH[@]} "}) {
    const MegatronArguments a = read(launcher + ("/opt/pretrain_gpt.py " + kModel) + "--own 1");
    ASSERT_EQ(a.others.size(), 1) << launcher;
    EXPECT_EQ(a.others[0].name, "own");
    EXPECT_EQ(a.unknown, std::vector<std::string>{"--own"}) << launcher;
    EXPECT_FALSE(a.harmless.empty());
    EXPECT_EQ(a.program, "/opt/pretrain_gpt.py");
  }
  EXPECT_EQ(read("S=\"/opt/pretrain_gpt.py\"\ntorchrun --x $S " + kModel).program,
            "/opt/pretrain_gpt.py");
  // Where it stands once more, it may be a value.
  EXPECT_EQ(handed_on("--hook pretrain_gpt.py --lr 3"), "  --lr 3 not hook");
  EXPECT_EQ(read("torchrun --x \"$ROOT\"/pretrain_gpt.py " + kModel).program, "pretrain_gpt.py");
}

TEST(MegatronScript, NoShellObeysWhatAFileSays) {
  MegatronArguments a = read(kModel);
  a.others = {{"wandb-project;id", {"$(id)", "a'b"}, true}};
  a.program = "a b.py";
  const std::string written = megatron_script(a);
  EXPECT_NE(written.find("--'wandb-project;id'"), std::string::npos) << written;
  EXPECT_NE(written.find("'a'\\''b'"), std::string::npos) << written;
  EXPECT_NE(written.find("'a b.py'"), std::string::npos) << written;
}

TEST(MegatronScript, SeveralMachinesAreSlurms) {
  MegatronArguments a = read(kModel);
  a.nodes = 2;
  a.ranks_per_node = 8;
  EXPECT_EQ(megatron_line(a, "run.sh"), "srun --nodes 2 --ntasks-per-node 1 bash run.sh");
  EXPECT_NE(megatron_script(a).find("--nnodes 2 --node_rank \"$NODE_RANK\""), std::string::npos);
  a.nodes = 1;
  EXPECT_EQ(megatron_line(a, "my run.sh"), "bash 'my run.sh'");
}

}  // namespace
}  // namespace headroom::engines
