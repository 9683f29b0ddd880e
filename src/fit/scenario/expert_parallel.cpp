#include "fit/scenario/expert_parallel.h"

#include <algorithm>

#include "fit/scenario/errors.h"
#include "model/load.h"

namespace headroom::fit {

namespace {

constexpr op::Version kExchangesRows{5, 23};  // as it was read and run

Result<void> check_within_other_divisions(const FitQuestion& q) {
  if (q.tensor_ranks > 1) {
    return unsupported("method", "shared out experts beside tensor parallelism",
                       "--method fsdp2:N,ep:M");
  }
  if (q.context_ranks > 1) {
    return unsupported("method", "shared out experts beside shared sequences",
                       "--method fsdp2:N,ep:M");
  }
  if (q.stages > 1) {
    return contradiction("method",
                         "transformers shares experts out in models that are on every rank whole",
                         "--method fsdp2:N,ep:M, or pp:N");
  }
  return {};
}

Result<void> check_around_experts(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.method != Method::full) {
    return unsupported("method", "adapters beside shared out experts",
                       "--method full,fsdp2:N,ep:M");
  }
  if (q.kernels != Kernels::none) {
    return unsupported("kernels", "other libraries' kernels beside shared out experts");
  }
  if (q.compile.any()) {
    return unsupported("compile", "torch.compile around shared out experts");
  }
  if (q.mixed_precision == MixedPrecision::fp16) {
    return contradiction("mixed-precision", "transformers' fully_shard mixes in bf16", "bf16");
  }
  if (q.offload != Offload::none) {
    return unsupported("offload", "offloading beside shared out experts");
  }
  if (q.classifies) return unsupported("task", "classes beside shared out experts");
  return {};
}

}  // namespace

Result<void> check_expert_parallel(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (s.build.transformers < kExchangesRows) {
    return contradiction("transformers", "experts are shared out as transformers 5.23 does it",
                         "5.23");
  }
  HEADROOM_TRY(check_within_other_divisions(q));
  HEADROOM_TRY(check_around_experts(s));
  if (!shards_ends(q)) {
    return contradiction("shard-ends", "transformers shards both ends where it shares experts out",
                         "leave it out");
  }
  if (q.reshards != step::Reshards::layers) {
    return contradiction("reshard-after-forward",
                         "transformers lets go of every layer where it shares experts out",
                         "leave it out");
  }
  const bool is_mixed = q.mixed_precision != MixedPrecision::none;
  if (q.reduce_dtype && (!is_mixed || q.reduce_dtype != Dtype::fp32)) {
    return contradiction(
        "reduce-dtype",
        "transformers reduces in float32 in mixed precision, else in the weights' type",
        "leave it out");
  }
  if (s.loss != Loss::hf) {
    return unsupported("loss", "another loss than the model's own beside shared out experts",
                       "--loss hf");
  }
  if (q.optimizer_loop == OptimizerLoop::foreach) {
    return unsupported("optimizer", "foreach kernels over parameters that are divided in two ways",
                       "leave -foreach out");
  }
  if (q.optimizer >= Optimizer::adafactor) {
    return unsupported("optimizer", "what does not step element by element on divided experts");
  }
  return {};
}

Result<void> check_shared_out(const Scenario& s, const Result<model::Graph>& built) {
  if (!built) {
    // At fault is the method where the model can be built without it.
    model::BuildOptions whole = s.build;
    whole.expert_ranks = 1;
    if (!model::build_graph(s.model->view(), whole, {s.question.assume})) return {};
    return contradiction("method", built.error().message, "ep:N of a divisor of them");
  }
  const model::Graph& graph = *built;
  if (std::ranges::find(graph.regions, model::RegionKind::experts, &model::Region::kind) ==
      graph.regions.end()) {
    return contradiction("method", "this model has no experts that transformers shares out",
                         "without ep:N");
  }
  const auto is_tied_head = [](const model::Parameter& parameter) {
    return parameter.role == model::ParameterRole::lm_head && parameter.tied_to;
  };
  if (std::ranges::any_of(graph.parameters, is_tied_head)) {
    return unsupported("method", "shared out experts of a model with tied embeddings");
  }
  return {};
}

}  // namespace headroom::fit
