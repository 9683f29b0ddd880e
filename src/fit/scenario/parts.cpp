#include "fit/scenario/parts.h"

#include "fit/optimizer_words.h"
#include "fit/scenario/errors.h"
#include "fit/scenario/expert_parallel.h"
#include "fit/scenario/pipeline.h"
#include "fit/scenario/zero.h"
#include "step/transform/liger.h"

namespace headroom::fit {

namespace {

constexpr op::Version kNonReentrantByDefault{5, 0};  // transformers

// transformers' T5 keeps one of its weights in float32 under fp16, and clamps what overflows.
Result<void> check_half_precision(const Scenario& s) {
  if (s.question.dtype != Dtype::fp16) return {};
  const Result<std::string> model_type = model_type_of(s);
  if (!model_type) return model_type.error();
  if (*model_type != "t5") return {};
  Error error = unsupported("dtype", "T5 in fp16");
  error.hint = "--dtype bf16, or --dtype fp32 with --mixed-precision fp16";
  return error;
}

step::KeptOutputs kept_outputs(const Checkpointing& checkpointing) {
  step::KeptOutputs kept;
  kept.attention = checkpointing.keeps != SelectiveKeeps::products;
  kept.products = checkpointing.keeps != SelectiveKeeps::attention;
  kept.but_every = checkpointing.but_every;
  return kept;
}

}  // namespace

void set_checkpointing(Scenario& s) {
  switch (s.question.checkpointing.kind) {
    case CheckpointingKind::none:
      s.train.checkpointing = step::CheckpointPolicy::none;
      return;
    case CheckpointingKind::selective:
      s.train.checkpoint_keeps = kept_outputs(s.question.checkpointing);
      [[fallthrough]];
    case CheckpointingKind::full:
      s.train.checkpointing = step::CheckpointPolicy::full;
      break;
    case CheckpointingKind::every_n:
      s.train.checkpointing = step::CheckpointPolicy::every_nth;
      s.train.checkpoint_every = static_cast<int>(s.question.checkpointing.every);
      break;
  }
  // A policy by operators is for the non-reentrant kind alone.
  const bool by_default = s.build.transformers < kNonReentrantByDefault;
  const bool reentrant =
      s.question.reentrant.value_or(by_default) && !s.train.checkpoint_keeps.any();
  s.train.checkpoint_kind =
      reentrant ? step::CheckpointKind::reentrant : step::CheckpointKind::non_reentrant;
  if (s.question.reentrant) return;
  s.derived.push_back(
      {"checkpointing-kind", reentrant ? "reentrant" : "non-reentrant", SettingOrigin::derived});
}

std::optional<op::AttentionBackend> named_kernel(Attention attention) {
  switch (attention) {
    case Attention::sdpa_math:
      return op::AttentionBackend::math;
    case Attention::sdpa_efficient:
      return op::AttentionBackend::efficient;
    case Attention::sdpa_flash:
      return op::AttentionBackend::flash;
    case Attention::sdpa_cudnn:
      return op::AttentionBackend::cudnn;
    default:
      return std::nullopt;
  }
}

void set_optimizer(Scenario& s) {
  step::OptimizerOptions& optimizer = s.train.optimizer;
  optimizer.wide_embedding_states = s.question.accelerate;
  optimizer.states_on_cpu = offloads_optimizer(s.question);
  if (const auto kept = bitsandbytes_of(s.question.optimizer)) {
    optimizer.kind = step::OptimizerKind::bitsandbytes;
    optimizer.bitsandbytes = *kept;
  }
  switch (s.question.optimizer) {
    case Optimizer::adamw:
      optimizer.kind = step::OptimizerKind::adamw;
      break;
    case Optimizer::adam:
      optimizer.kind = step::OptimizerKind::adam;
      optimizer.weight_decay = false;
      break;
    case Optimizer::sgd:
    case Optimizer::sgd_momentum:
      optimizer.kind = step::OptimizerKind::sgd;
      optimizer.weight_decay = false;
      optimizer.momentum = s.question.optimizer == Optimizer::sgd_momentum ? 0.9 : 0;
      break;
    case Optimizer::adafactor:
      optimizer.kind = step::OptimizerKind::adafactor;
      break;
    case Optimizer::hf_adafactor:
      optimizer.kind = step::OptimizerKind::hf_adafactor;
      break;
    default:  // bitsandbytes'
      break;
  }
  // HybridAdam, one kernel over all; it counts steps itself.
  if (s.question.division == Division::gemini) {
    optimizer.implementation = step::OptimizerImplementation::fused;
    optimizer.counts_on_host = true;
    return;
  }
  // torch.optim takes the loop where a parameter is a DTensor (_default_to_fused_or_foreach).
  const bool has_dtensors = s.question.tensor_ranks > 1 || s.question.division == Division::fsdp2;
  switch (s.question.optimizer_loop) {
    case OptimizerLoop::automatic:
      optimizer.implementation = has_dtensors ? step::OptimizerImplementation::loop
                                              : step::OptimizerImplementation::foreach;
      break;
    case OptimizerLoop::foreach:
      optimizer.implementation = step::OptimizerImplementation::foreach;
      break;
    case OptimizerLoop::fused:
      optimizer.implementation = step::OptimizerImplementation::fused;
      break;
    case OptimizerLoop::loop:
      optimizer.implementation = step::OptimizerImplementation::loop;
      break;
  }
}

namespace {

// Layers are wrapped, and under FSDP1 peft has its adapters wrapped too; the rest is the root's,
// but what --shard-ends says. Mixed precision is FSDP's own beside autocast. Hybrid sharding
// reduces a share once more, in place.
step::FsdpOptions fsdp_options(const Scenario& s) {
  step::FsdpOptions fsdp;
  fsdp.version = s.question.division == Division::fsdp1 ? 1 : 2;
  fsdp.ranks = s.question.ranks * s.question.context_ranks;  // torchtitan's dp_shard_cp
  fsdp.replicas = s.question.replicas;
  fsdp.expert_ranks = s.question.expert_ranks;
  fsdp.weights = s.train.weights;
  fsdp.offload = s.question.offload == Offload::parameters;
  fsdp.sync_each_batch = syncs_each_batch(s.question);
  // transformers' Trainer, of what it did not hand to accelerate (_defer_fsdp_gradient_reduction).
  fsdp.defers_replicas = s.question.expert_ranks > 1 && s.question.replicas > 1;
  fsdp.in_pipeline = s.question.stages > 1;
  fsdp.wrap.reshards = s.question.reshards;
  fsdp.wrap.ends = shards_ends(s.question);
  // fms-acceleration's fused LoRA has FSDP ignore the adapters and averages their gradients itself
  // (fms_acceleration_foak/utils.py: lora_adapters_switch_ddp_from_fsdp).
  const bool is_fused_lora = s.question.kernels == Kernels::fast && has_quantized_base(s.question);
  // peft's policy wraps modules with a weight that is trained: IA3's vectors are in none.
  const bool has_matrices = s.question.method != Method::full && s.question.method != Method::ia3;
  if (fsdp.version == 1 && has_matrices) {
    fsdp.wrap.adapters = is_fused_lora ? step::WrapAdapters::ignored : step::WrapAdapters::apart;
  }
  constexpr op::Version kCheckpointsWithinLayers{4, 52};
  fsdp.wrap.inside_checkpoints = s.build.transformers < kCheckpointsWithinLayers;
  if (s.question.mixed_precision != MixedPrecision::none) {
    const bool is_half = s.question.mixed_precision == MixedPrecision::fp16;
    fsdp.compute = is_half ? op::DType::f16 : op::DType::bf16;
  }
  // transformers/distributed/fsdp.py: _get_fsdp_policy_kwargs.
  if (fsdp.compute && fsdp.expert_ranks > 1) fsdp.reduce = op::DType::f32;
  if (s.question.reduce_dtype) fsdp.reduce = dtype_of(*s.question.reduce_dtype);
  return fsdp;
}

step::DdpOptions ddp_options(const FitQuestion& q) {
  step::DdpOptions ddp;
  ddp.bucket_bytes = q.bucket_cap_mb * kMiB;
  // The first bucket is a small one only where no size is given (_BucketCapacityConfig).
  if (q.given.contains("bucket-cap-mb")) ddp.first_bucket_bytes = ddp.bucket_bytes;
  ddp.gradient_as_bucket_view = q.gradient_as_bucket_view;
  ddp.find_unused_parameters = q.find_unused_parameters;
  return ddp;
}

}  // namespace

namespace {

// Where nobody says what of a quantized model is prepared.
void leave_unprepared(Scenario& s) {
  const bool is_bitsandbytes =
      s.question.method == Method::qlora || s.question.method == Method::lora_8bit;
  if (!is_bitsandbytes || s.question.given.contains("kbit-preparation")) return;
  s.question.kbit_preparation = KbitPreparation::none;
  s.derived.push_back({"kbit-preparation", "none", SettingOrigin::derived});
}

}  // namespace

void set_division(Scenario& s) {
  switch (s.question.division) {
    case Division::none:
      return;
    case Division::ddp:
      s.train.parallel = ddp_options(s.question);
      return;
    case Division::zero1:
    case Division::zero2:
    case Division::zero3:
      s.train.parallel = zero_options(s);
      // The engine makes the whole model half precision, adapters too.
      if (s.question.method != Method::full && !s.question.given.contains("lora-dtype")) {
        s.question.lora_dtype = s.question.dtype;
        s.derived.push_back({"lora-dtype", s.question.dtype == Dtype::fp16 ? "fp16" : "bf16",
                             SettingOrigin::derived});
      }
      leave_unprepared(s);
      return;
    case Division::gemini:
      s.train.parallel = step::GeminiOptions{.ranks = s.question.ranks,
                                             .tensor_ranks = s.question.tensor_ranks,
                                             .clips = s.question.clip.has_value()};
      return;
    case Division::fsdp1:
    case Division::fsdp2:
      break;
  }
  s.train.parallel = fsdp_options(s);
  // A unit's parameters are of one type, so trainers that shard a quantized model prepare nothing
  // (trl/trainer/sft_trainer.py: is_sharded_qlora).
  leave_unprepared(s);
}

Result<void> set_loss(Scenario& s) {
  s.loss = s.question.loss;
  if (s.loss != Loss::automatic || s.traced) return {};  // a trace has its own loss
  if (s.build.classes) {  // a few numbers a sequence, which no kernel is for
    s.loss = Loss::hf;
    return {};
  }
  switch (s.question.kernels) {
    case Kernels::none:
      s.loss = Loss::hf;
      break;
    case Kernels::fast:
      s.loss = Loss::fused;
      break;
    case Kernels::liger: {
      HEADROOM_ASSIGN(const std::string model_type, model_type_of(s));
      const bool is_linear = step::liger_loss(model_type) == step::LigerLoss::fused_linear;
      s.loss = is_linear ? Loss::fused_linear : Loss::fused;
      break;
    }
  }
  s.derived.push_back({"loss", std::string(word_of(s.loss)), SettingOrigin::derived});
  return {};
}

namespace {

Result<void> check_optimizer(const FitQuestion& q) {
  if (steps_on_host(q) && q.optimizer >= Optimizer::lion) {
    return contradiction("offload", "bitsandbytes' optimizers step on the GPU",
                         "offload one of torch.optim's: adamw, adam, sgd");
  }
  const bool is_sharded = is_fsdp(q.division);
  if (offloads_parameters(q) && !is_sharded && q.division != Division::zero3) {
    return contradiction("offload",
                         "parameters on the host are FSDP's shares or ZeRO's third stage's",
                         "--method fsdp1:N, fsdp2:N or zero3:N, or --offload optimizer");
  }
  if (q.offload == Offload::optimizer_and_parameters && is_sharded) {
    return contradiction("offload", "FSDP's shares are on the host with their optimizer, or not",
                         "--offload parameters");
  }
  if (!q.optimizer_in_backward || q.stages > 1) return {};
  if (q.clip) {
    return contradiction("optimizer-in-backward", "clipping needs all gradients at once",
                         "leave --clip out");
  }
  if (q.grad_accum > 1) {
    return contradiction("optimizer-in-backward", "accumulation keeps what a step would let go",
                         "leave --grad-accum out, or take a larger --batch");
  }
  if (steps_on_host(q)) {
    return contradiction("optimizer-in-backward", "an offloaded optimizer steps after backward",
                         "leave --offload or --optimizer-in-backward out");
  }
  return {};
}

// The package flash-attn, version 2: half precision, Ampere or newer (its README).
Result<void> check_flash(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.attention != Attention::flash2 || s.traced) return {};
  if (q.dtype == Dtype::fp32 && q.mixed_precision == MixedPrecision::none) {
    return contradiction("attention", "FlashAttention-2 takes half precision",
                         "--dtype bf16, or --attention sdpa");
  }
  if (s.device->compute_capability.known() && s.device->compute_capability.value.major < 8) {
    return contradiction("attention", "FlashAttention-2 needs a GPU of compute capability 8.0",
                         "--attention sdpa");
  }
  return {};
}

Result<void> check_ddp(const Scenario& s) {
  if (s.question.optimizer_in_backward) {
    return unsupported("optimizer-in-backward", "stepping in backward under DDP");
  }
  if (s.train.environment.torch < op::Version{1, 11}) {
    return contradiction("torch", "DDP is modelled as PyTorch has it since 1.11", "a later one");
  }
  return {};
}

// As LLMem's authors run it: the whole model in half precision, stepped by HybridAdam on the GPU
// behind every backward pass, alone or around Colossal-AI's own tensor parallelism.
Result<void> check_gemini(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.dtype == Dtype::fp32 || q.mixed_precision != MixedPrecision::none) {
    return contradiction("dtype", "Gemini makes the model half precision, with masters of its own",
                         "--dtype fp16, or bf16");
  }
  if (q.method != Method::full) {
    return contradiction("method", "Colossal-AI's Gemini takes no adapters (support_lora is false)",
                         "--method lora,ddp:N, lora,zero2:N or lora,fsdp2:N");
  }
  if (!q.freeze.empty()) return unsupported("freeze", "frozen parts under Gemini");
  if (q.optimizer > Optimizer::adam || q.optimizer_loop != OptimizerLoop::automatic) {
    return contradiction("optimizer", "Gemini steps by an Adam of its own", "adamw or adam");
  }
  if (q.optimizer_in_backward) {
    return contradiction("optimizer-in-backward", "Gemini has its gradients when backward is done",
                         "leave it out");
  }
  if (q.offload != Offload::none) return unsupported("offload", "Gemini's placement on the host");
  if (q.grad_accum > 1) {
    return contradiction("grad-accum", "Gemini's chunks hold gradients or parameters, not both",
                         "a larger --batch");
  }
  return {};
}

namespace {

// Bytes of four-bit weights are elements of the model's type to it (bnb_4bit_quant_storage): it
// casts them where it casts that type, and they are no weights any more.
Result<void> check_storage_of_bits(const FitQuestion& q) {
  const Dtype cast_to = q.mixed_precision == MixedPrecision::bf16 ? Dtype::bf16 : Dtype::fp16;
  if (q.mixed_precision == MixedPrecision::none || cast_to == q.dtype) return {};
  return contradiction("mixed-precision",
                       "FSDP would cast the elements that four-bit weights are stored in",
                       std::string("--mixed-precision none, or --dtype ") +
                           (cast_to == Dtype::bf16 ? "bf16" : "fp16"));
}

Result<void> check_quantized_under_fsdp(const FitQuestion& q) {
  if (q.method == Method::qlora) HEADROOM_TRY(check_storage_of_bits(q));
  if (q.method == Method::lora_8bit) {
    return unsupported("method", "weights of 8 bits that FSDP shares out",
                       "--method lora-8bit,ddp:N");
  }
  if (q.division != Division::fsdp2) return {};
  if (q.method == Method::gptq_lora) return unsupported("method", "GPTQ under fully_shard");
  return {};
}

}  // namespace

Result<void> check_fsdp(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.optimizer_in_backward) {
    return contradiction("optimizer-in-backward", "FSDP has its gradients when backward is done",
                         "leave it out");
  }
  if (q.offload == Offload::optimizer)
    return unsupported("offload", "the optimizer alone under FSDP");
  // _flat_param.py: what was reduced is the host's, and the next cannot be added to it there, which
  // fully_shard does.
  if (q.offload == Offload::parameters && q.division == Division::fsdp1 && q.grad_accum > 1 &&
      syncs_each_batch(q)) {
    return contradiction("offload", "FSDP adds nothing to gradients that the host has",
                         "--sync-each-batch false, as accelerate accumulates; or --grad-accum 1");
  }
  if (q.method == Method::dora && q.division == Division::fsdp1) {
    return contradiction("method",
                         "FSDP's first version wraps adapters by themselves (peft's policy) and "
                         "lets go of matrices that DoRA then reads: it ends with an error",
                         "--method dora,fsdp2:N, or lora,fsdp1:N");
  }
  // A layer's unit has IA3's vectors in it, where LoRA's matrices are units of their own.
  if (q.method == Method::ia3 && q.division == Division::fsdp1 && q.lora_dtype != q.dtype) {
    return contradiction("lora-dtype", "parameters that FSDP puts together are of one type",
                         "what --dtype says, as bf16; or --method ia3,fsdp2:N");
  }
  if (has_quantized_base(q)) HEADROOM_TRY(check_quantized_under_fsdp(q));
  if (q.method == Method::qlora && q.division == Division::fsdp1 &&
      q.kbit_preparation != KbitPreparation::none) {
    return contradiction("kbit-preparation", "parameters that FSDP puts together are of one type",
                         "--kbit-preparation none");
  }
  if (!q.placements.empty()) return unsupported("placements", "a plan over several streams");
  const bool is_first = q.division == Division::fsdp1;
  if (s.train.environment.torch < (is_first ? op::Version{2, 0} : op::Version{2, 6})) {
    return contradiction("torch",
                         "this FSDP is modelled as PyTorch has it since 2.0, fully_shard since 2.6",
                         "a later one");
  }
  return {};
}

// torchtitan's plan: modules of transformers' in sequences' parts.
Result<void> check_sequence_parallel(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.kernels != Kernels::none) {
    return unsupported("kernels", "other libraries' kernels beside sequence parallelism");
  }
  if (s.loss != Loss::hf && s.loss != Loss::chunked_head) {
    return contradiction("loss", "the logits stay divided, and such a loss takes whole ones",
                         "--loss hf, or chunked-head");
  }
  if (q.attention == Attention::eager) {
    return contradiction("attention",
                         "the mask of eager attention is made of a rank's part of the sequence",
                         "--attention sdpa");
  }
  const int64_t parts = q.tensor_ranks * (q.context_ranks > 1 ? 2 * q.context_ranks : 1);
  if (q.seq % parts == 0) return {};
  return contradiction("seq",
                       "a sequence of " + std::to_string(q.seq) + " is not divided by the " +
                           std::to_string(parts) + " parts that tensor parallel ranks" +
                           (q.context_ranks > 1 ? " and twice the context ranks" : "") +
                           " make of it",
                       "a multiple of " + std::to_string(parts));
}

// As transformers applies its plans, with DTensors, alone or within DDP or fully_shard.
Result<void> check_tensor_parallel(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.method == Method::gptq_lora) {
    return unsupported("method", "GPTQ's weights under tensor parallelism");
  }
  // Tried with transformers 5.23, peft 0.21 and bitsandbytes 0.50 on two processes.
  if (has_quantized_base(q)) {
    return contradiction("method",
                         "transformers' plan makes DTensors of the weights, and peft and "
                         "bitsandbytes end with an error there",
                         "--method lora,tp:N, or qlora,fsdp2:N");
  }
  if (q.method != Method::full && q.method != Method::lora) {
    return unsupported("method", "adapters other than LoRA beside tensor-parallel modules");
  }
  constexpr op::Version kPeftDivides{5, 4};
  if (q.method == Method::lora && s.build.transformers < kPeftDivides) {
    return contradiction("transformers", "peft divides adapters with transformers since 5.4",
                         "a later one");
  }
  // Tried with transformers 5.23, peft 0.21 and accelerate 1.15, which gets no further itself
  // (docs/measurements/2026-11-29-shared-experts).
  if (q.method == Method::lora && q.division == Division::fsdp2) {
    return contradiction("method",
                         "transformers shards what it divides before peft adds adapters, and the "
                         "step ends with an error",
                         "--method lora,tp:N, or lora,fsdp2:N");
  }
  if (q.method == Method::lora && q.division != Division::none) {
    return unsupported("method", "adapters beside tensor-parallel modules within DDP",
                       "--method lora,tp:N, or lora,ddp:N");
  }
  if (q.method == Method::lora && q.sequence_parallel) {
    return contradiction("sequence-parallel",
                         "torchtitan's own adapters beside its plan are not modelled",
                         "--sequence-parallel false, as transformers divides");
  }
  if (q.division != Division::none && q.division != Division::fsdp2 &&
      q.division != Division::ddp) {
    return unsupported("method", "tensor parallelism within ZeRO or FSDP's first version");
  }
  if (q.sequence_parallel) HEADROOM_TRY(check_sequence_parallel(s));
  if (!q.sequence_parallel && s.loss != Loss::hf && s.loss != Loss::fused) {
    return contradiction("loss", "the head's rows are divided, so its logits have to be gathered",
                         "--loss hf");
  }
  if (q.kernels == Kernels::fast) {
    return unsupported("kernels", "fms-acceleration's kernels beside tensor parallelism");
  }
  const bool is_of_many =
      q.optimizer_loop == OptimizerLoop::foreach || q.optimizer_loop == OptimizerLoop::fused;
  if (is_of_many && !q.sequence_parallel) {  // else all are DTensors
    return contradiction("optimizer",
                         "PyTorch's foreach and fused kernels refuse DTensors beside plain tensors",
                         "leave -foreach and -fused out");
  }
  if (q.optimizer >= Optimizer::adafactor) {
    return unsupported("optimizer", "what does not step element by element on DTensors");
  }
  if (q.optimizer_in_backward) {
    return unsupported("optimizer-in-backward", "stepping in backward under tensor parallelism");
  }
  if (q.offload != Offload::none) {
    return unsupported("offload", "offloading under tensor parallelism");
  }
  return {};
}

// Within fully_shard's groups, as torchtitan has it.
Result<void> check_context_parallel(const FitQuestion& q) {
  if (q.classifies) return unsupported("method", "shared sequences of which a class is found");
  if (q.tensor_ranks > 1 && !q.sequence_parallel) {
    return unsupported("method", "context parallelism beside transformers' tensor parallelism",
                       "--sequence-parallel true is");
  }
  const bool has_lora = q.method == Method::lora || q.method == Method::qlora;
  if (q.method != Method::full && !has_lora) {
    return unsupported("method", "adapters other than LoRA beside context parallelism");
  }
  if (has_lora && q.stages > 1) {
    return unsupported("method", "adapters beside context parallelism in a pipeline");
  }
  return {};
}

Result<void> check_division(const Scenario& s) {
  const Division division = s.question.division;
  if (!is_divided(s.question)) return {};
  if (s.traced) return unsupported("method", "a traced module among several GPUs");
  if (s.question.stages > 1) HEADROOM_TRY(check_pipeline(s));
  if (s.question.context_ranks > 1) HEADROOM_TRY(check_context_parallel(s.question));
  if (s.question.expert_ranks > 1) HEADROOM_TRY(check_expert_parallel(s));
  const bool hands_gradients_on = division == Division::none || division == Division::fsdp2;
  if (s.loss == Loss::chunked_head && !hands_gradients_on) {
    return unsupported("loss", "a head in chunks under another method than fully_shard",
                       "--method fsdp2:N");
  }
  if (division == Division::gemini) return check_gemini(s);
  if (s.question.tensor_ranks > 1) HEADROOM_TRY(check_tensor_parallel(s));
  if (division == Division::none) return {};
  if (division == Division::ddp) return check_ddp(s);
  return is_fsdp(division) ? check_fsdp(s) : check_zero(s);
}

// transformers' models are traced whole with their losses where nothing of another library's is in
// them. What divides a step breaks such a graph at each bucket, or hooks modules within it.
Result<void> check_compiled_model(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (is_divided(q)) {
    return unsupported("compile", "a whole model under torch.compile among several GPUs",
                       "--compile layers");
  }
  if (s.loss != Loss::hf) {
    return unsupported("compile", "a loss of fused kernels, or in chunks, within a compiled model",
                       "--loss hf, or --compile layers");
  }
  if (q.attention == Attention::flash2) {
    return unsupported("compile", "flash-attn within a compiled model",
                       "--attention sdpa, or --compile layers");
  }
  return {};
}

// What a compiled region may have in it: PyTorch's own operators, on whole tensors.
Result<void> check_compile(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (!q.compile.any()) return {};
  if (s.traced) return unsupported("compile", "torch.compile of a traced module");
  if (s.train.environment.torch < op::Version{2, 6}) {
    return contradiction("torch", "torch.compile is modelled as PyTorch has it since 2.6",
                         "a later one");
  }
  if (q.compile.loss && q.sequence_parallel && q.tensor_ranks > 1) {
    return unsupported("compile", "a compiled loss of divided logits",
                       "--compile layers; in torchtitan's file --compile.components model");
  }
  if (q.compile.loss && s.loss != Loss::hf) {
    return contradiction("compile",
                         "a loss of fused kernels, or in chunks, is none that is compiled",
                         "--loss hf, or --compile layers");
  }
  if (q.compile.model) HEADROOM_TRY(check_compiled_model(s));
  if (!q.compile.layers && !q.compile.model) return {};
  if (has_quantized_base(q)) {
    return unsupported("compile", "quantized modules in compiled layers");
  }
  if (q.kernels != Kernels::none) {
    return unsupported("compile", "other libraries' kernels in compiled layers");
  }
  if (q.tensor_ranks > 1 && !q.sequence_parallel) {
    return unsupported("compile", "transformers' tensor parallelism in compiled layers",
                       "--sequence-parallel true is");
  }
  if (q.division == Division::zero3 || q.division == Division::gemini) {
    return contradiction("compile", "modules within a layer are hooked, which breaks its graph",
                         "--method fsdp2:N, or --compile loss");
  }
  if (q.division == Division::fsdp1 && q.method != Method::full) {
    return unsupported("compile", "adapters that FSDP wraps within compiled layers");
  }
  if (q.stages > 1 && step::splits_backward(q.schedule)) {
    return contradiction("compile", "a compiled layer's backward pass is one, and not to be split",
                         "--pipeline-schedule 1f1b");
  }
  return {};
}

// As torchtitan has it: compiled, since eager casts would be slower than half precision.
Result<void> check_float8(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.float8 == Float8::none) return {};
  if (!q.compile.layers) {
    return contradiction("float8", "torchao's float8 is modelled in compiled layers",
                         "--compile layers");
  }
  if (q.method != Method::full) return unsupported("float8", "adapters beside float8");
  if (q.division != Division::none && q.division != Division::fsdp2) {
    return unsupported("float8", "float8 under other methods than fully_shard");
  }
  if (q.division != Division::fsdp2 && q.mixed_precision != MixedPrecision::none) {
    return contradiction("float8", "autocast's own casts are not modelled beside float8's",
                         "--dtype bf16 without --mixed-precision");
  }
  if (q.dtype == Dtype::fp16 || q.mixed_precision == MixedPrecision::fp16) {
    return contradiction("float8", "float8 is modelled beside bf16", "--dtype bf16");
  }
  if (!s.device->rate(device::Rate::fp8).known()) {
    return contradiction("float8", "nothing says that this device multiplies in float8",
                         "an H100, or leave it out");
  }
  return {};
}

// Policies name PyTorch's own operators; those of other libraries run again.
Result<void> check_selective(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.checkpointing.kind != CheckpointingKind::selective) return {};
  if (s.traced) return unsupported("checkpointing", "selective checkpointing of a traced module");
  if (q.reentrant.value_or(false)) {
    return contradiction("checkpointing-kind",
                         "policies by operators are of the non-reentrant kind", "non-reentrant");
  }
  if (has_quantized_base(q)) {
    return unsupported("checkpointing", "selective checkpointing of quantized modules");
  }
  if (q.kernels == Kernels::fast) {
    return unsupported("checkpointing", "selective checkpointing of fused modules");
  }
  if (q.attention == Attention::flash2 && s.train.checkpoint_keeps.attention) {
    return contradiction("checkpointing", "flash-attn's operator is none of PyTorch's",
                         "--attention sdpa, or --checkpointing selective-products");
  }
  return {};
}

}  // namespace

// Tensor cores take bf16 from compute capability 8.0 on (NVIDIA's Ampere tuning guide); before,
// PyTorch runs it all the same, by other kernels.
bool has_bf16(const device::Device& device) {
  const auto& capability = device.compute_capability;
  return !capability.known() || capability.value.major >= 8;
}

void warn_of_bf16(Scenario& s) {
  if (has_bf16(*s.device) || s.question.any_precision) return;
  const bool computes_in_it =
      s.question.mixed_precision == MixedPrecision::bf16 ||
      (s.question.dtype == Dtype::bf16 && s.question.mixed_precision == MixedPrecision::none);
  if (!computes_in_it) return;
  s.warnings.push_back(s.device->name +
                       " has no units for bf16, which is slow there and leaves out fused "
                       "attention; ask again with --dtype fp16");
}

// torch.amp.GradScaler refuses gradients in fp16 ("Attempting to unscale FP16 gradients"), so that
// such a run ends at its first step, whatever its memory.
void warn_of_fp16_gradients(Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.mixed_precision != MixedPrecision::fp16) return;
  const Dtype trained = q.method == Method::full ? q.dtype : q.lora_dtype;
  if (trained != Dtype::fp16) return;
  const char* const flag = q.method == Method::full ? "--dtype fp32" : "--lora-dtype fp32";
  s.warnings.push_back(
      std::string("mixed precision in fp16 wants weights in float32 to train: PyTorch's GradScaler "
                  "refuses gradients in fp16; ask again with ") +
      flag);
}

void warn_of_compiled_masks(Scenario& s) {
  const FitQuestion& q = s.question;
  if (!q.compile.model || s.build.attention != model::Attention::sdpa) return;
  if (s.task != model::Task::causal_lm) return;
  s.warnings.push_back(
      "compiled as a whole, transformers hands attention a mask (before PyTorch 2.14), which flash "
      "kernels do not take; --compile layers has none (in accelerate's dynamo_config: "
      "dynamo_use_regional_compilation)");
}

Result<void> check_supported(const Scenario& s) {
  const FitQuestion& q = s.question;
  // Accepted words that would change nothing must not be answered as if they did.
  HEADROOM_TRY(check_optimizer(q));
  if (!q.freeze.empty() && q.method != Method::full) {
    return contradiction("freeze", "adapters freeze the whole model",
                         "leave --freeze or --method out");
  }
  if (q.method == Method::lora_8bit && q.kernels == Kernels::fast) {
    return unsupported("kernels", "fms-acceleration's kernels beside weights of 8 bits");
  }
  HEADROOM_TRY(check_half_precision(s));
  HEADROOM_TRY(check_flash(s));
  HEADROOM_TRY(check_division(s));
  HEADROOM_TRY(check_selective(s));
  HEADROOM_TRY(check_compile(s));
  return check_float8(s);
}

Result<void> set_allocator(Scenario& s) {
  s.planned = s.question.allocator == kPlannedAllocator;
  if (s.planned) return {};
  auto settings = memory::parse_allocator_config(s.question.allocator);
  if (!settings) {
    // A flag's words are at fault, though a variable of the environment would be input.
    Error error = settings.error();
    error.code = ErrorCode::usage;
    error.where = "--allocator: " + error.where;
    return error;
  }
  s.allocator = std::move(*settings);
  return {};
}

}  // namespace headroom::fit
