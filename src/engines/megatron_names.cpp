#include "engines/megatron_names.h"

#include <algorithm>
#include <array>

namespace headroom::engines {

namespace {

constexpr auto kNotModelled = std::to_array<std::string_view>({
    "apply-residual-connection-post-layernorm",
    "cpu-offloading-num-layers",
    "cuda-graph-impl",
    "delay-wgrad-compute",
    "enable-cuda-graph",
    "fp32-residual-connection",
    "fp4-format",
    "fp8",
    "heterogeneous-layers-config-path",
    "hybrid-layer-pattern",
    "hybrid-override-pattern",
    "moe-expert-rank-capacity-factor",
    "moe-layer-freq",
    "moe-shared-expert-overlap",
    "use-grouped-gemm-for-shared-expert",
    "mla-down-proj-fusion",
    "mtp-num-layers",
    "optimizer-cpu-offload",
    "overlap-moe-expert-parallel-comm",
    "quick-geglu",
    "spec",
    "squared-relu",
    "tp-comm-overlap",
    "use-checkpoint-args",
    "use-legacy-models",
    "use-megatron-fsdp",
    "use-precision-aware-optimizer",
    "use-te-activation-func",
    "use-torch-fsdp2",
});

constexpr auto kNotModelledInFp8 = std::to_array<std::string_view>({
    "first-last-layers-bf16",
    "fp8-output-proj",
    "fp8-param-gather",
    "fp8-quantizer-factory",
    "no-fp8-wgrad",
    "reuse-grad-buf-for-mxfp8-param-ag",
    "te-precision-config-file",
});

constexpr auto kOnlyValues = std::to_array<OnlyValue>(
    {{"cross-entropy-fusion-impl", "native"}, {"optimizer", "adam"}, {"cp-comm-type", "p2p"}});

// Beginnings of names.
constexpr auto kHarmless = std::to_array<std::string_view>({
    "adam-",
    "async-",
    "attention-softmax-in-fp32",
    "bf16",
    "calculate-per-token-loss",
    "ckpt-",
    "clip-grad",
    "config",
    "data-",
    "dataloader-",
    "ddp-",
    "decay-",
    "dist-ckpt-",
    "distributed-",
    "end-weight-decay",
    "eval-",
    "exit-",
    "finetune",
    "fp8-amax-compute-algo",
    "fp8-interval",
    "fp8-margin",
    "initial-loss-scale",
    "init-method-std",
    "load",
    "log-",
    "loss-scale",
    "lr",
    "manual-gc",
    "mscale",
    "merge-file",
    "min-loss-scale",
    "min-lr",
    "mock-data",
    "moe-aux-loss-coeff",
    "moe-router-",
    "moe-z-loss-coeff",
    "no-async",
    "no-ckpt-",
    "no-load-",
    "no-log-",
    "no-masked-softmax-fusion",
    "no-mmap-",
    "no-save-",
    "norm-epsilon",
    "num-dataset-builder-threads",
    "num-workers",
    "override-opt",
    "overlap-param-gather-",
    "profile",
    "rampup-batch-size",
    "reset-",
    "rope-type",
    "rotary-",
    "save",
    "seed",
    "split",
    "start-weight-decay",
    "tensorboard-",
    "test-data",
    "tiktoken-",
    "timing-",
    "tokenizer-",
    "train-",
    "use-dist-ckpt",
    "use-mcore-models",
    "use-persistent-ckpt-worker",
    "use-rope-scaling",
    "use-tp-pp-dp-mapping",
    "valid-data",
    "vocab-file",
    "wandb-",
    "weight-decay",
});

}  // namespace

std::span<const std::string_view> megatron_not_modelled() { return kNotModelled; }

std::span<const std::string_view> megatron_not_modelled_in_fp8() { return kNotModelledInFp8; }

std::span<const OnlyValue> megatron_only_values() { return kOnlyValues; }

bool is_harmless_to_megatron(std::string_view name) {
  return std::ranges::any_of(kHarmless,
                             [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace headroom::engines
