"""Published steps of Megatron-LM, Megatron-Core and NeMo: what was run, and how long it took.

RUNS is a list of Run; HOST is another, of models so small that the host decides. Facts are the sources' (SOURCES); what a source does not say, and what is asked of `fit` in the
place of what it does not model, stands in a Run's `asked`.
"""

import dataclasses

SOURCES = {
    "golden": "NVIDIA/Megatron-LM d98e8a64, tests/functional_tests/test_cases/*/golden_values_*.json and model_config.yaml: "
              "median iteration-time",
    "readme": "NVIDIA/Megatron-LM d98e8a64, README.md and images/model_table.png: model TFLOP/s a GPU, Megatron-Core 0.8",
    "mlsys": "NVIDIA/Megatron-LM 841f789f, README.md: model FLOPs utilisation; settings: arXiv 2205.05198, table 3, "
             "quoted from memory; its step times (1.10, 13.75, 37.8, 71.5 s) follow from both",
    "nemo": "NVIDIA/NeMo, docs/source/performance/performance_summary.md (container 24.07; long sequences: 24.03.01): "
            "tokens/s a GPU; models: NVIDIA/NeMo-Framework-Launcher 26e42fa9, launcher_scripts/conf/training",
    "bridge": "NVIDIA-NeMo/Megatron-Bridge 067f987d, docs/performance-summary-archive.md: tokens/s a GPU",
    "flagperf": "FlagOpen/FlagPerf, training/nvidia/{llama3_8B,llama3_70B,mixtral_8x7B}-megatron/README.md, "
                "training/benchmarks/*/megatron/*.sh: tokens/s a GPU, Megatron-Core 0.6",
}

# What a word of Run.asked stands for.
ASKED = {
    "micro": "the source does not say how many sequences a micro-batch has: one",
    "chunks": "the source does not say how stages are interleaved: a layer a chunk, as strong scaling to 12 micro-batches "
              "of six stages at 42 % needs",
    "gelu": "asked with GELU in the place of a squared ReLU: as many bytes",
    "plain-tp": "asked without --tp-comm-overlap",
    "mp": "asked with parameters gathered in bf16",
    "a800": "on an A800, an A100 whose NVLink has two thirds of the rate",
    "sent": "asked with tokens sent by all-to-all, in the place of DeepEP or HybridEP, and without CUDA graphs",
}

A100, H100, GB200 = "a100-sxm-80gb", "h100-sxm-80gb", "gb200-186gb"


@dataclasses.dataclass
class Run:
    model: str
    source: str
    gpu: str
    gpus: int
    sizes: str  # of the model, arguments of Megatron-LM
    tp: int = 1
    pp: int = 1
    chunk: int = 0  # layers of a virtual stage; 0: not interleaved
    cp: int = 1
    ep: int = 1
    micro: int = 1
    batch: int = 1
    seq: int = 4096
    more: str = ""
    seconds: float = 0  # one of these four
    tokens: float = 0  # a second and GPU
    tflops: float = 0  # of the model, a GPU
    mfu: float = 0
    asked: tuple = ()

    def arguments(self):
        words = [f"{self.sizes} --micro-batch-size {self.micro} --global-batch-size {self.batch} --seq-length {self.seq} "
                 f"--max-position-embeddings {self.seq}"]
        for name, value in (("tensor-model-parallel-size", self.tp), ("pipeline-model-parallel-size", self.pp),
                            ("context-parallel-size", self.cp), ("expert-model-parallel-size", self.ep)):
            if value > 1:
                words.append(f"--{name} {value}")
        if self.chunk:
            words.append(f"--num-layers-per-virtual-pipeline-stage {self.chunk}")
        return " ".join(words + [self.more])


def gpt(layers, hidden, heads, vocab, more="--untie-embeddings-and-output-weights"):
    return (f"--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} --vocab-size {vocab} {more}")


def llama(layers, hidden, heads, kv, ffn, vocab):
    grouped = f"--group-query-attention --num-query-groups {kv} " if kv < heads else ""
    return gpt(layers, hidden, heads, vocab,
               f"--ffn-hidden-size {ffn} {grouped}--swiglu --normalization RMSNorm --disable-bias-linear "
               "--position-embedding-type rope --untie-embeddings-and-output-weights")


def nemotron(layers, hidden, heads, kv, vocab=256000):
    grouped = f"--group-query-attention --num-query-groups {kv} " if kv < heads else ""
    return gpt(layers, hidden, heads, vocab, f"--ffn-hidden-size {4 * hidden} {grouped}--disable-bias-linear "
               "--position-embedding-type rope --untie-embeddings-and-output-weights")


OVERLAP = "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
NO_DROPOUT = "--attention-dropout 0 --hidden-dropout 0"
BF16 = f"--bf16 {OVERLAP} {NO_DROPOUT}"
BF16_SP = f"{BF16} --sequence-parallel"
FP8 = f"{BF16_SP} --fp8-format hybrid"

GPT_7B = gpt(32, 4096, 32, 131073, "--group-query-attention --num-query-groups 8 --untie-embeddings-and-output-weights")
TESTED = f"--bf16 {OVERLAP} --deterministic-mode --no-gradient-accumulation-fusion"
T5_11B = ("--encoder-num-layers 24 --decoder-num-layers 24 --hidden-size 4096 --num-attention-heads 64 --kv-channels 64 "
          "--ffn-hidden-size 10240 --decoder-seq-length 128 --vocab-size 28998 --vocab-extra-ids 100")
MIXTRAL = "--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall"


def golden():
    for gpu, pipelined, tensor in ((A100, 2.942, 2.587), (H100, 1.150, 1.115), (GB200, 0.787, 0.853)):
        yield Run("gpt-7b", "golden", gpu, 8, GPT_7B, pp=4, chunk=1, batch=8, seq=8192, more=TESTED, seconds=pipelined)
        yield Run("gpt-7b", "golden", gpu, 8, GPT_7B, tp=4, micro=2, batch=8, seq=8192, more=TESTED, seconds=tensor)
    for gpu, seconds in ((A100, 0.970), (H100, 0.393)):
        yield Run("t5-11b", "golden", gpu, 8, T5_11B, tp=4, micro=4, batch=8, seq=512,
                  more="--bf16 --deterministic-mode", seconds=seconds)


# Model size, heads, hidden, layers, tensor, pipeline, GPUs, batch, teraFLOP/s a GPU.
README = [("gpt3-1.7b", 16, 2048, 24, 1, 1, 48, 192, 408.8), ("gpt3-7.1b", 32, 4096, 30, 2, 1, 96, 192, 465.9),
          ("gpt3-16b", 48, 6144, 32, 4, 1, 192, 192, 489.1), ("gpt3-32b", 56, 7168, 48, 8, 1, 384, 192, 459.6),
          ("gpt3-70b", 64, 8192, 84, 8, 2, 768, 384, 419.7), ("gpt3-119b", 80, 10240, 92, 8, 4, 1536, 768, 420.5),
          ("gpt3-175b", 96, 12288, 96, 8, 6, 2304, 1152, 432.8), ("gpt3-314b", 128, 16384, 96, 8, 8, 3072, 1536, 474.4),
          ("gpt3-462b", 144, 18432, 112, 8, 16, 6144, 3072, 459.9)]


def readme():
    for model, heads, hidden, layers, tp, pp, gpus, batch, tflops in README:
        asked = ("micro",) + (("chunks",) if pp > 1 else ()) + (("plain-tp",) if tp > 1 else ())
        yield Run(model, "readme", H100, gpus, gpt(layers, hidden, heads, 131072), tp=tp, pp=pp,
                  chunk=1 if pp > 1 else 0, batch=batch, more=BF16_SP if tp > 1 else BF16, tflops=tflops, asked=asked)


# Heads, hidden, layers, pipeline, layers of a chunk, GPUs and batch, micro-batch, MFU. One data parallel rank.
MLSYS = [("gpt3-22b", 64, 6144, 48, 1, 0, 8, 4, 4, 0.415), ("gpt3-175b", 96, 12288, 96, 8, 4, 64, 64, 1, 0.514),
         ("gpt3-530b", 128, 20480, 105, 35, 1, 280, 280, 1, 0.560), ("gpt3-1t", 160, 25600, 128, 64, 0, 512, 512, 1, 0.563)]


def mlsys():
    for model, heads, hidden, layers, pp, chunk, gpus, batch, micro, mfu in MLSYS:
        yield Run(model, "mlsys", A100, gpus, gpt(layers, hidden, heads, 51200, ""), tp=8, pp=pp, chunk=chunk, micro=micro,
                  batch=batch, seq=2048, mfu=mfu,
                  more="--fp16 --sequence-parallel --recompute-granularity selective --transformer-impl local")


LLAMA2_7B = llama(32, 4096, 32, 32, 11008, 32000)
LLAMA3_8B = llama(32, 4096, 32, 8, 14336, 128256)
LLAMA3_70B = llama(80, 8192, 64, 8, 28672, 128256)
LLAMA31_405B = llama(126, 16384, 128, 8, 53248, 128256)


def nemo():
    def run(model, sizes, gpus, batch, micro, seq, tp, pp, cp, chunk, tokens, *asked):
        said = asked + (("plain-tp",) if tp > 1 else ())
        more = FP8 if tp > 1 else FP8.replace(" --sequence-parallel", "")
        return Run(model, "nemo", H100, gpus, sizes, tp=tp, pp=pp, cp=cp, chunk=chunk, micro=micro, batch=batch, seq=seq,
                   more=more, tokens=tokens, asked=said)

    gpt175 = gpt(96, 12288, 96, 51200)
    yield run("gpt3-5b", gpt(24, 4096, 32, 51200), 64, 2048, 4, 2048, 1, 1, 1, 0, 23406)
    yield run("gpt3-20b", gpt(44, 6144, 48, 51200), 64, 256, 2, 2048, 2, 1, 1, 0, 5851)
    yield run("gpt3-175b", gpt175, 128, 256, 1, 2048, 4, 8, 1, 2, 716)
    yield run("gpt3-175b", gpt175, 512, 2048, 2, 2048, 4, 8, 1, 2, 825)
    yield run("llama2-7b", LLAMA2_7B, 8, 128, 1, 4096, 1, 1, 1, 0, 16934)
    yield run("llama2-13b", llama(40, 5120, 40, 40, 13824, 32000), 16, 128, 1, 4096, 1, 4, 1, 1, 8715)
    yield run("llama2-70b", llama(80, 8192, 64, 8, 28672, 32000), 64, 128, 1, 4096, 4, 4, 1, 1, 1728)
    yield run("nemotron-8b", nemotron(32, 4096, 32, 32), 64, 256, 4, 4096, 2, 1, 1, 0, 12507, "gelu")
    yield run("nemotron-22b", nemotron(40, 6144, 48, 48), 64, 256, 2, 4096, 2, 4, 1, 1, 4312, "gelu")
    yield run("nemotron-340b", nemotron(96, 18432, 96, 8), 128, 32, 1, 4096, 8, 8, 1, 1, 326, "gelu")
    yield run("llama3-8b", LLAMA3_8B, 8, 128, 1, 8192, 1, 1, 2, 0, 12273)
    yield run("llama3-70b", LLAMA3_70B, 64, 128, 1, 8192, 4, 4, 2, 4, 1524)
    for thousands, gpus, batch, tp, cp, tokens in ((8, 8, 512, 1, 2, 13907), (16, 16, 256, 2, 1, 10082),
                                                   (32, 32, 128, 2, 2, 6687), (64, 64, 64, 4, 2, 4021),
                                                   (128, 128, 32, 4, 4, 2260), (256, 256, 16, 4, 8, 1214),
                                                   (512, 512, 8, 8, 16, 635)):
        yield run("llama2-7b", LLAMA2_7B, gpus, batch, 1, 1024 * thousands, tp, 1, cp, 0, tokens)


def bridge():
    for gpus, batch, tokens in ((64, 256, 1664), (64, 128, 1602)):
        yield Run("llama3-70b", "bridge", H100, gpus, LLAMA3_70B, tp=4, pp=8, chunk=2, batch=batch, seq=8192,
                  more=f"{FP8} --fp8-recipe tensorwise", tokens=tokens, asked=("plain-tp", "mp"))
    for batch, tokens in ((1536, 326), (512, 292)):
        yield Run("llama3.1-405b", "bridge", H100, 1024, LLAMA31_405B, tp=8, pp=8, chunk=2, cp=2, batch=batch, seq=8192,
                  more=f"{FP8} --fp8-recipe tensorwise --account-for-embedding-in-pipeline-split "
                       "--account-for-loss-in-pipeline-split", tokens=tokens, asked=("plain-tp", "mp"))


    qwen = "--qk-layernorm --kv-channels 128 " + MIXTRAL.replace("experts 8", "experts 128").replace("topk 2", "topk 8")
    small = llama(48, 2048, 32, 4, 6144, 151936) + f" {qwen} --moe-ffn-hidden-size 768"
    large = llama(94, 4096, 64, 4, 12288, 151936) + f" {qwen} --moe-ffn-hidden-size 1536"
    yield Run("qwen3-30b-a3b", "bridge", H100, 16, small, ep=16, batch=1024, tokens=8826, asked=("mp", "sent"),
              more=f"{FP8} --fp8-recipe tensorwise".replace(" --sequence-parallel", ""))
    yield Run("qwen3-235b-a22b", "bridge", H100, 256, large, tp=2, pp=8, chunk=3, ep=32, batch=8192, tokens=1712,
              more=f"{FP8} --fp8-recipe tensorwise --expert-tensor-parallel-size 1 "
                   "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
              asked=("plain-tp", "mp", "sent"))


FLAGPERF = "--bf16 --use-distributed-optimizer --sequence-parallel --recompute-activations"


def flagperf():
    def flat(layers, hidden, heads, ffn):  # learned positions, biases, tied embeddings
        return gpt(layers, hidden, heads, 128256,
                   f"--ffn-hidden-size {ffn} --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm")

    small = flat(32, 4096, 32, 14336)
    one_gpu = FLAGPERF.replace(" --sequence-parallel", "")
    yield Run("llama3-8b", "flagperf", A100, 8, small, pp=2, batch=512, seq=8192, more=one_gpu, tokens=3698.7, asked=("a800",))
    for gpus, plain, fp8 in ((8, 8103, 10486), (16, 7914, 10280)):
        yield Run("llama3-8b", "flagperf", H100, gpus, small, tp=2, batch=512, seq=8192, more=FLAGPERF, tokens=plain)
        yield Run("llama3-8b", "flagperf", H100, gpus, small, tp=2, batch=512, seq=8192, tokens=fp8,
                  more=f"{FLAGPERF} --fp8-format hybrid --fp8-amax-history-len 1024")
    yield Run("llama3-70b", "flagperf", H100, 64, flat(80, 8192, 64, 28672), tp=8, pp=4, batch=512, seq=8192, more=FLAGPERF,
              tokens=851)
    mixtral = llama(32, 4096, 32, 8, 14336, 32000) + " --moe-router-topk 2 --num-experts 8 --moe-grouped-gemm"
    yield Run("mixtral-8x7b", "flagperf", H100, 32, mixtral, tp=8, pp=2, micro=3, batch=1200, tokens=2844,
              more=f"{FLAGPERF} --no-rope-fusion")


def small_tests():
    small = gpt(12, 512, 8, 50257, "")
    for gpu, one, four in ((A100, 0.1128, 0.1672), (H100, 0.0832, 0.1185)):
        yield Run("gpt-small", "golden", gpu, 8, small, micro=4, batch=32, seq=1024, seconds=one,
                  more="--bf16 --use-distributed-optimizer --no-gradient-accumulation-fusion --deterministic-mode")
        yield Run("gpt-small", "golden", gpu, 8, small, tp=2, pp=2, micro=4, batch=32, seq=1024, seconds=four,
                  more="--bf16 --cross-entropy-loss-fusion --no-gradient-accumulation-fusion")


HOST = [*small_tests()]
RUNS = [*golden(), *readme(), *mlsys(), *nemo(), *bridge(), *flagperf()]
