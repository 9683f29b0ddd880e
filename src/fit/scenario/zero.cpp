#include "fit/scenario/zero.h"

#include <string>
#include <utility>

#include "fit/scenario/errors.h"
#include "fit/stage3_flags.h"
#include "model/hidden_size.h"

namespace headroom::fit {

namespace {

// So many squares of the model's hidden size and so many times it, where the count is "auto".
Result<void> resolve_one(Scenario& s, const std::string& flag, double squares, double sizes,
                         int64_t& count) {
  if (count != kOfHiddenSize || s.traced) return {};
  HEADROOM_ASSIGN(const auto hidden, model::hidden_size_of(s.model->view()));
  if (!hidden) {
    return contradiction(flag.c_str(),
                         "the model's configuration has no hidden size to take it from",
                         "a number in place of auto");
  }
  const auto size = static_cast<double>(*hidden);
  count = static_cast<int64_t>(squares * size * size + sizes * size);
  s.derived.push_back({flag, std::to_string(count), SettingOrigin::derived});
  return {};
}

}  // namespace

// accelerate sets fp16.enabled or bf16.enabled of DeepSpeed's configuration, and no autocast
// (accelerate 1.15, utils/dataclasses.py: DeepSpeedPlugin.set_mixed_precision; accelerator.py:
// native_amp), HF's Trainer the same (integrations/deepspeed.py: trainer_config_process); the
// engine casts every parameter then (DeepSpeed 0.19, runtime/engine.py:
// _configure_distributed_model). What fp16 has besides, auto_cast, casts inputs of a floating-point
// type: tokens are none.
FitQuestion as_deepspeed_runs(FitQuestion question) {
  if (!is_zero(question.division) || question.mixed_precision == MixedPrecision::none) {
    return question;
  }
  question.dtype = question.mixed_precision == MixedPrecision::fp16 ? Dtype::fp16 : Dtype::bf16;
  question.mixed_precision = MixedPrecision::none;
  return question;
}

Result<void> take_half_of_deepspeed(Scenario& s) {
  const FitQuestion& q = s.question;
  if (s.traced || !is_zero(q.division) || q.mixed_precision == MixedPrecision::none) return {};
  FitQuestion running = as_deepspeed_runs(q);
  // Of four bits or eight the type is also what products are computed in, which DeepSpeed leaves.
  if (has_quantized_base(q) && q.given.contains("dtype") && q.dtype != running.dtype) {
    return contradiction("dtype", "DeepSpeed makes what is not quantized another type",
                         "leave --dtype or --mixed-precision out");
  }
  s.question = std::move(running);
  s.derived.push_back(
      {"dtype", setting_of(settings_of(s.question), "dtype"), SettingOrigin::derived});
  return {};
}

// As HF's Trainer and accelerate fill it in.
Result<void> resolve_auto(Scenario& s) {
  FitQuestion& q = s.question;
  if (is_zero(q.division)) {
    HEADROOM_TRY(resolve_one(s, "reduce-bucket-size", 1, 0, q.reduce_bucket_size));
  }
  if (q.division != Division::zero3) return {};
  for (size_t i = 0; i < engines::kStage3Counts.size(); ++i) {
    const engines::Stage3Count& count = engines::kStage3Counts[i];
    const std::string flag(kStage3Flags[i].name());
    HEADROOM_TRY(resolve_one(s, flag, count.squares, count.sizes, q.stage3[i]));
  }
  return {};
}

step::ZeroOptions zero_options(const Scenario& s) {
  using engines::Stage3;
  step::ZeroOptions zero;
  const FitQuestion& q = s.question;
  zero.stage = q.division == Division::zero1 ? 1 : q.division == Division::zero2 ? 2 : 3;
  zero.ranks = q.ranks;
  zero.reduce_bucket_elements = q.reduce_bucket_size;
  zero.overlap_comm = overlaps_comm(q);
  zero.decay_groups = s.train.optimizer.decay_groups;
  zero.weights = s.train.weights;
  zero.offload_optimizer = offloads_optimizer(q);
  zero.offload_parameters = offloads_parameters(q);
  const auto stage3 = [&](Stage3 count) { return q.stage3[static_cast<size_t>(count)]; };
  zero.sub_group_elements = stage3(Stage3::sub_group_size);
  zero.prefetch_elements = stage3(Stage3::prefetch_bucket_size);
  zero.persistence_elements = stage3(Stage3::param_persistence_threshold);
  zero.most_live_elements = stage3(Stage3::max_live_parameters);
  zero.reuse_elements = stage3(Stage3::max_reuse_distance);
  return zero;
}

namespace {

// Parameters are there while a module of their own runs. Who takes one elsewhere has it gathered by
// itself and kept to the step's end, which is not modelled.
Result<void> check_stage_3(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.method == Method::lora_8bit) {
    return unsupported("method", "weights of 8 bits that ZeRO's third stage shares out",
                       "--method lora-8bit,zero2:N");
  }
  // DeepSpeed was seen to hold other vectors of theirs (docs/measurements/2026-11-29-adapters).
  if (q.method == Method::dora || q.method == Method::ia3) {
    return unsupported("method", "DoRA and IA3 under ZeRO's third stage",
                       "a --method with zero2:N or fsdp2:N");
  }
  if (s.loss != Loss::hf && s.loss != Loss::fused) {
    return contradiction("loss",
                         "such a loss takes the head's weight outside of the head, where ZeRO's "
                         "third stage does not gather it",
                         "--loss hf");
  }
  if (!q.placements.empty()) return unsupported("placements", "a plan over several streams");
  if (q.kernels == Kernels::fast) {
    return unsupported("kernels", "fms-acceleration's kernels under ZeRO's third stage");
  }
  return {};
}

// Weights of 4 bits and of 8 are whole on every rank of the first two stages.
Result<void> check_quantized(const FitQuestion& q) {
  if (q.kbit_preparation != KbitPreparation::none) {
    return contradiction("kbit-preparation", "DeepSpeed makes the rest of the model half precision",
                         "--kbit-preparation none");
  }
  return {};
}

}  // namespace

// DeepSpeed makes the whole model half precision ("bf16": {"enabled": true}), keeps float32 masters
// itself, and steps them by one optimizer on the GPU.
Result<void> check_zero(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.dtype == Dtype::fp32 || q.mixed_precision != MixedPrecision::none) {
    return contradiction("dtype", "DeepSpeed's ZeRO is modelled with half precision of its own",
                         "--dtype bf16, as its configuration's \"bf16\" makes the model");
  }
  if (q.method == Method::gptq_lora) return unsupported("method", "GPTQ under ZeRO");
  if (has_quantized_base(q)) HEADROOM_TRY(check_quantized(q));
  if (q.method != Method::full && q.lora_dtype != q.dtype) {
    return contradiction("lora-dtype", "DeepSpeed makes adapters what it makes the model",
                         "leave it out");
  }
  if (q.optimizer_in_backward) {
    return contradiction("optimizer-in-backward", "ZeRO has its gradients when backward is done",
                         "leave it out");
  }
  if (q.optimizer >= Optimizer::adafactor) {
    return unsupported("optimizer", "what does not step flat tensors element by element");
  }
  if (offloads_optimizer(q) && q.optimizer > Optimizer::adam) {
    return contradiction("optimizer", "DeepSpeed's optimizer on the CPU is an Adam",
                         "adamw or adam, or leave --offload out");
  }
  return q.division == Division::zero3 ? check_stage_3(s) : Result<void>();
}

}  // namespace headroom::fit
