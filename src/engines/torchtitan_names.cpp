#include "engines/torchtitan_names.h"

#include <algorithm>
#include <array>
#include <limits>

namespace headroom::engines {

namespace {

constexpr auto kConfigs = std::to_array<TorchtitanConfig>({
    {"llama3", "llama3_8b", "meta-llama/Llama-3.1-8B", 1, 8192, 1, 32, false, false},
    {"llama3", "llama3_70b", "meta-llama/Llama-3.1-70B", 8, 8192, 8, 80, false, true},
    {"qwen3", "qwen3_0_6b", "Qwen/Qwen3-0.6B", 4, 4096, 1, 28, true, false},
    {"qwen3", "qwen3_1_7b", "Qwen/Qwen3-1.7B", 4, 4096, 1, 28, true, false},
    {"qwen3", "qwen3_14b", "Qwen/Qwen3-14B", 4, 4096, 1, 40, false, true},
    {"qwen3", "qwen3_32b", "Qwen/Qwen3-32B", 2, 4096, 1, 64, false, true},
});

constexpr auto kNotModelled = std::to_array<std::string_view>({
    "compile.enable-async-tensor-parallel",
    "debug.batch-invariant",
    "override.imports",
    "parallelism.enable-fsdp-symm-mem",
});

// Beginnings of names.
constexpr auto kHarmless = std::to_array<std::string_view>({
    "checkpoint.",
    "comm.",
    "dataloader.",
    "debug.",
    "dump-folder",
    "hf-assets-path",
    "lr-scheduler.",
    "metrics.",
    "optimizer.param-groups.0.optimizer-kwargs.",
    "profiler.",
    "tokenizer.",
    "training.gc-",
    "training.steps",
    "validator.",
});

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

constexpr TorchtitanSchedule kSchedules[] = {
    {"1F1B", StageSchedule::one_forward_one_backward, 1, 1},
    {"GPipe", StageSchedule::gpipe, 1, 1},
    {"Interleaved1F1B", StageSchedule::one_forward_one_backward, 2, kAny},
    {"InterleavedZeroBubble", StageSchedule::zero_bubble, 2, kAny},
    {"ZBVZeroBubble", StageSchedule::zero_bubble_v, 2, 2},
    {"DualPipeV", StageSchedule::dual_pipe_v, 2, 2},
};

}  // namespace

std::span<const TorchtitanConfig> torchtitan_configs() { return kConfigs; }

std::span<const TorchtitanSchedule> torchtitan_schedules() { return kSchedules; }

std::span<const std::string_view> torchtitan_not_modelled() { return kNotModelled; }

bool is_harmless_to_torchtitan(std::string_view name) {
  return std::ranges::any_of(kHarmless,
                             [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace headroom::engines
