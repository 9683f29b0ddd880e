#include "fit/idle_settings.h"

#include <array>

#include "fit/optimizer_words.h"
#include "fit/stage3_flags.h"

namespace headroom::fit {

namespace {

struct IdleRule {
  const char* flag;
  bool (*is_idle)(const FitQuestion&);
  const char* why;
};

bool has_no_adapters(const FitQuestion& q) { return q.method == Method::full; }
bool has_no_matrices(const FitQuestion& q) {
  return q.method == Method::full || q.method == Method::ia3;
}

bool has_no_buckets(const FitQuestion& q) { return q.division != Division::ddp; }

bool is_no_zero(const FitQuestion& q) { return !is_zero(q.division); }
bool is_no_stage_3(const FitQuestion& q) { return q.division != Division::zero3; }

constexpr const char* kNoZero = "it belongs to --method zero1:N, zero2:N and zero3:N";
constexpr const char* kNoStage3 = "it belongs to --method zero3:N";
constexpr const char* kNoBuckets = "it belongs to --method ddp:N";
constexpr const char* kNoAdapters = "--method full has no adapters";
constexpr const char* kNoMatrices = "only LoRA and its relatives have low-rank matrices";

constexpr std::array kRules{
    IdleRule{"lora-targets", has_no_adapters, kNoAdapters},
    IdleRule{"lora-dtype", has_no_adapters, kNoAdapters},
    IdleRule{"lora-rank", has_no_matrices, kNoMatrices},
    IdleRule{"lora-dropout", has_no_matrices, kNoMatrices},
    IdleRule{"bucket-cap-mb", has_no_buckets, kNoBuckets},
    IdleRule{"gradient-as-bucket-view", has_no_buckets, kNoBuckets},
    IdleRule{"find-unused-parameters", has_no_buckets, kNoBuckets},
    IdleRule{"reduce-dtype", [](const FitQuestion& q) { return q.division != Division::fsdp2; },
             "it belongs to --method fsdp2:N"},
    IdleRule{"shard-ends",
             [](const FitQuestion& q) { return q.division != Division::fsdp2 || q.stages > 1; },
             "it belongs to --method fsdp2:N, without a pipeline"},
    IdleRule{"reshard-after-forward",
             [](const FitQuestion& q) { return q.division != Division::fsdp2 || q.stages > 1; },
             "it belongs to --method fsdp2:N, without a pipeline"},
    IdleRule{"loss-chunks", [](const FitQuestion& q) { return q.loss != Loss::chunked_head; },
             "it belongs to --loss chunked-head"},
    IdleRule{
        "sequence-parallel",
        [](const FitQuestion& q) { return q.tensor_ranks == 1 || q.division == Division::gemini; },
        "it belongs to --method tp:N, alone or within fsdp2:M and ddp:M"},
    IdleRule{"sync-each-batch",
             [](const FitQuestion& q) { return !is_fsdp(q.division) || q.stages > 1; },
             "it belongs to --method fsdp1:N and fsdp2:N, without a pipeline"},
    IdleRule{"labels", [](const FitQuestion& q) { return !q.classifies; },
             "it belongs to --task sequence-classification"},
    IdleRule{"pipeline-schedule", [](const FitQuestion& q) { return q.stages == 1; },
             "it belongs to --method pp:N"},
    IdleRule{"reduce-bucket-size", is_no_zero, kNoZero},
    IdleRule{"overlap-comm", is_no_zero, kNoZero},
    IdleRule{"ia3-feedforward", [](const FitQuestion& q) { return q.method != Method::ia3; },
             "it belongs to --method ia3"},
    IdleRule{"kbit-preparation", [](const FitQuestion& q) { return !has_bitsandbytes_base(q); },
             "it belongs to --method qlora and lora-8bit"},
    IdleRule{"checkpointing-kind",
             [](const FitQuestion& q) { return q.checkpointing.kind == CheckpointingKind::none; },
             "nothing is checkpointed"},
    IdleRule{"gptq-group", [](const FitQuestion& q) { return q.method != Method::gptq_lora; },
             "it belongs to --method gptq-lora"},
    IdleRule{"use-cache",
             [](const FitQuestion& q) {
               return q.use_cache && q.checkpointing.kind != CheckpointingKind::none;
             },
             "transformers makes no cache where it checkpoints"},
    IdleRule{"accelerate",
             [](const FitQuestion& q) {
               const auto kept = bitsandbytes_of(q.optimizer);
               const bool is_8_bit = kept && kept->has_8_bits;
               const bool accumulates =
                   is_fsdp(q.division) && q.grad_accum > 1 && !q.sync_each_batch;
               const bool is_sharded = q.division == Division::fsdp2;
               const bool is_autocast =
                   q.mixed_precision != MixedPrecision::none && !is_zero(q.division);
               return q.accelerate && !is_sharded && !is_autocast && !is_8_bit && !accumulates;
             },
             "it matters under --mixed-precision, to 8-bit optimizers, and to accumulation under "
             "FSDP"},
};

}  // namespace

std::vector<std::string> idle_settings(const FitQuestion& question) {
  std::vector<std::string> sentences;
  for (const IdleRule& rule : kRules) {
    if (!question.given.contains(rule.flag) || !rule.is_idle(question)) continue;
    sentences.push_back("--" + std::string(rule.flag) + " changes nothing here: " + rule.why);
  }
  for (const Stage3Flag& flag : kStage3Flags) {
    if (!question.given.contains(flag.name()) || !is_no_stage_3(question)) continue;
    sentences.push_back("--" + std::string(flag.name()) + " changes nothing here: " + kNoStage3);
  }
  return sentences;
}

}  // namespace headroom::fit
