#include "fit/scenario/zero.h"

#include <array>
#include <string>

#include "fit/scenario/errors.h"
#include "model/hidden_size.h"

namespace headroom::fit {

// As HF's Trainer and accelerate fill it in, in Python's floats
// (transformers/integrations/deepspeed.py, accelerate/accelerator.py).
Result<void> resolve_auto(Scenario& s) {
  FitQuestion& q = s.question;
  struct Auto {
    const char* flag;
    int64_t FitQuestion::*field;
    double squares;  // of the hidden size
    double sizes;
    bool is_third;  // of that stage alone
  };
  constexpr std::array kAll{
      Auto{"reduce-bucket-size", &FitQuestion::reduce_bucket_size, 1, 0, false},
      Auto{"stage3-prefetch-bucket-size", &FitQuestion::stage3_prefetch_bucket_size, 0.9, 0, true},
      Auto{"stage3-param-persistence-threshold", &FitQuestion::stage3_param_persistence_threshold,
           0, 10, true}};
  for (const Auto& one : kAll) {
    const bool is_used = one.is_third ? q.division == Division::zero3 : is_zero(q.division);
    if (!is_used || q.*(one.field) != kOfHiddenSize || s.traced) continue;
    HEADROOM_ASSIGN(const auto hidden, model::hidden_size_of(s.model->view()));
    if (!hidden) {
      return contradiction(one.flag, "the model's configuration has no hidden size to take it from",
                           "a number in place of auto");
    }
    const auto size = static_cast<double>(*hidden);
    q.*(one.field) = static_cast<int64_t>(one.squares * size * size + one.sizes * size);
    s.derived.push_back({one.flag, std::to_string(q.*(one.field)), SettingOrigin::derived});
  }
  return {};
}

step::ZeroOptions zero_options(const Scenario& s) {
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
  zero.sub_group_elements = q.sub_group_size;
  zero.prefetch_elements = q.stage3_prefetch_bucket_size;
  zero.persistence_elements = q.stage3_param_persistence_threshold;
  zero.most_live_elements = q.stage3_max_live_parameters;
  zero.reuse_elements = q.stage3_max_reuse_distance;
  return zero;
}

namespace {

// Parameters are there while a module of their own runs. Who takes one elsewhere has it gathered by
// itself and kept to the step's end, which is not modelled.
Result<void> check_stage_3(const Scenario& s) {
  const FitQuestion& q = s.question;
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

}  // namespace

// DeepSpeed makes the whole model half precision ("bf16": {"enabled": true}), keeps float32 masters
// itself, and steps them by one optimizer on the GPU.
Result<void> check_zero(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.dtype == Dtype::fp32 || q.mixed_precision != MixedPrecision::none) {
    return contradiction("dtype", "DeepSpeed's ZeRO is modelled with half precision of its own",
                         "--dtype bf16, as its configuration's \"bf16\" makes the model");
  }
  if (q.method != Method::full && q.method != Method::lora) {
    return unsupported("method", "what is neither full nor lora under ZeRO");
  }
  if (q.method == Method::lora && q.lora_dtype != q.dtype) {
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
