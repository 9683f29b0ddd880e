#include "fit/search/remedies.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>

#include "fit/megatron/remedies.h"
#include "fit/search/search.h"
#include "fit/stages.h"

namespace headroom::fit {

namespace {

// What saves less than this part of what is used changes no answer.
constexpr int64_t kLeastPart = 1000;

// A change of some flags, as data. `when` says whether it is a change at all.
struct Change {
  const char* name;
  const char* title;
  const char* flags;       // "--name value ..."
  const char* flags_else;  // where those cannot be run for this model; or null
  const char* how;
  const char* cost;
  bool (*when)(const FitQuestion&);
};

bool is_adam(const FitQuestion& q) {
  return q.optimizer == Optimizer::adamw || q.optimizer == Optimizer::adam;
}

// The dearest to run first: they go side by side, and none should be left for the end.
constexpr Change kChanges[] = {
    {"planned-allocation", "a planned allocation", "--allocator planned", nullptr,
     "headroom run -- python train.py ... records, plans and serves (docs/run.md)",
     "sizes that vary from step to step are outside of the plan",
     [](const FitQuestion& q) { return q.allocator != kPlannedAllocator; }},
    {"liger", "Liger-Kernel's norms, rotary embeddings, gates and loss", "--kernels liger", nullptr,
     "use_liger_kernel=True in TrainingArguments", "",
     [](const FitQuestion& q) { return q.kernels == Kernels::none; }},
    {"fused-linear-loss", "fused linear cross entropy", "--loss fused-linear", nullptr,
     "LigerFusedLinearCrossEntropyLoss on the hidden states and lm_head.weight; "
     "use_liger_kernel=True brings it too",
     "no logits in the outputs",
     [](const FitQuestion& q) {
       return q.loss != Loss::fused_linear && q.loss != Loss::chunked_head;
     }},
    {"chunked-loss", "cross entropy in chunks", "--loss chunked", nullptr,
     "torchtune's CEWithChunkedOutputLoss, or the same by hand", "",
     [](const FitQuestion& q) {
       return q.loss != Loss::chunked && q.loss != Loss::fused_linear &&
              q.loss != Loss::chunked_head && q.kernels == Kernels::none;
     }},
    {"checkpointing", "checkpoint every layer", "--checkpointing full", nullptr,
     "model.gradient_checkpointing_enable()", "one more forward pass: about a third more time",
     [](const FitQuestion& q) { return q.checkpointing.kind != CheckpointingKind::full; }},
    {"reentrant-checkpoints", "checkpoints that let go of what products are given",
     "--checkpointing-kind reentrant", nullptr,
     "gradient_checkpointing_kwargs={\"use_reentrant\": True} in TrainingArguments", "",
     [](const FitQuestion& q) {
       const bool is_checkpointed = q.checkpointing.kind == CheckpointingKind::full ||
                                    q.checkpointing.kind == CheckpointingKind::every_n;
       return q.method == Method::lora_8bit && is_checkpointed && !q.reentrant.value_or(false);
     }},
    {"selective-checkpointing", "checkpoint every layer, but keep products and attention",
     "--checkpointing selective", nullptr,
     "gradient_checkpointing_kwargs with use_reentrant=False and context_fn="
     "create_selective_checkpoint_contexts (torch.utils.checkpoint)",
     "cheap operators run twice: a few percent more time",
     [](const FitQuestion& q) { return q.checkpointing.kind == CheckpointingKind::none; }},
    {"fused-optimizer", "fused instead of foreach optimizer", "--optimizer adamw-fused", nullptr,
     "torch.optim.AdamW(..., fused=True); optim=\"adamw_torch_fused\" in TrainingArguments", "",
     [](const FitQuestion& q) {
       return q.optimizer == Optimizer::adamw && q.optimizer_loop != OptimizerLoop::fused;
     }},
    {"8-bit-states", "optimizer states in 8 bits", "--optimizer adamw-8bit", nullptr,
     "bitsandbytes.optim.AdamW8bit; optim=\"adamw_bnb_8bit\" in TrainingArguments, which keeps the "
     "states of embeddings in float32 (--accelerate true)",
     "a change of numerics, small in practice",
     // Reported not to run under FSDP (bitsandbytes issues 89 and 1633, both open).
     [](const FitQuestion& q) { return is_adam(q) && q.division == Division::none; }},
    {"optimizer-in-backward", "step each parameter in backward", "--optimizer-in-backward", nullptr,
     "register_post_accumulate_grad_hook with one optimizer a parameter",
     "no accumulation and no clipping by the global norm",
     [](const FitQuestion& q) { return !q.optimizer_in_backward && q.grad_accum == 1 && !q.clip; }},
    {"lora", "low-rank adapters (LoRA)", "--method lora", "--method lora --lora-targets all-linear",
     "peft.get_peft_model(model, LoraConfig(r=16, ...))", "trains adapters only",
     [](const FitQuestion& q) { return q.method == Method::full; }},
    {"qlora", "LoRA on a 4-bit base", "--method qlora", "--method qlora --lora-targets all-linear",
     "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True) and peft",
     "trains adapters only; the base is quantized",
     [](const FitQuestion& q) { return q.method == Method::full || q.method == Method::lora; }},
    {"sdpa", "fused attention", "--attention sdpa", nullptr, "attn_implementation=\"sdpa\"", "",
     [](const FitQuestion& q) { return q.attention == Attention::eager; }},
    {"expandable-segments", "expandable segments", "--allocator expandable_segments:True", nullptr,
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "no CUDA IPC of tensors",
     [](const FitQuestion& q) { return q.allocator.empty(); }},
    {"bucket-view", "gradients inside the buckets", "--gradient-as-bucket-view true", nullptr,
     "DistributedDataParallel(..., gradient_as_bucket_view=True)", "",
     [](const FitQuestion& q) {
       return q.division == Division::ddp && !q.gradient_as_bucket_view;
     }},
    {"sync-each-batch", "reduce gradients behind every micro-batch", "--sync-each-batch true",
     nullptr,
     "accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}} in "
     "TrainingArguments; GradientAccumulationPlugin(sync_each_batch=True) of accelerate",
     "gradients are sent once a micro-batch",
     [](const FitQuestion& q) {
       return is_fsdp(q.division) && q.grad_accum > 1 && !syncs_each_batch(q) &&
              q.offload == Offload::none;
     }},
    {"drop-outputs", "let the outputs go before backward", "--keep-outputs false", nullptr,
     "take outputs.loss and del outputs before loss.backward()", "",
     [](const FitQuestion& q) { return q.keep_outputs; }},
    {"offload-optimizer", "optimizer states in the host's memory", "--offload optimizer", nullptr,
     "DeepSpeed offload_optimizer, or torchao's CPUOffloadOptimizer",
     "states travel over PCIe every step",
     [](const FitQuestion& q) { return q.offload == Offload::none; }},
    {"offload-shares", "shares of all that is trained in the host's memory", "--offload parameters",
     nullptr,
     "FullyShardedDataParallel(..., cpu_offload=CPUOffload(True)), or fully_shard(..., "
     "offload_policy=CPUOffloadPolicy())",
     "the host steps the optimizer; parameters and gradients travel over PCIe every step",
     [](const FitQuestion& q) { return is_fsdp(q.division) && q.offload == Offload::none; }},
    {"offload-parameters", "optimizer states and parameters in the host's memory",
     "--offload optimizer,parameters", nullptr, "DeepSpeed offload_optimizer and offload_param",
     "states and parameters travel over PCIe every step",
     [](const FitQuestion& q) {
       return q.division == Division::zero3 && q.offload != Offload::optimizer_and_parameters;
     }},
};

// Applies "--name value --switch --name value" to a question.
Result<void> apply_flags(FitQuestion& question, std::string_view flags) {
  while (!flags.empty()) {
    const size_t name_end = std::min(flags.find(' '), flags.size());
    const std::string_view name = flags.substr(2, name_end - 2);
    flags.remove_prefix(std::min(name_end + 1, flags.size()));
    if (flags.empty() || flags.starts_with("--")) {
      HEADROOM_TRY(question.set(name, "true"));
      continue;
    }
    const size_t value_end = std::min(flags.find(' '), flags.size());
    HEADROOM_TRY(question.set(name, flags.substr(0, value_end)));
    flags.remove_prefix(std::min(value_end + 1, flags.size()));
  }
  return {};
}

// A question that can be asked of this model, with what it would take.
using Attempt = Varied;

std::optional<Attempt> attempt(const Scenario& scenario, const FitQuestion& question) {
  auto varied = vary_fullest(scenario, question);
  if (!varied) return std::nullopt;
  return std::move(*varied);
}

// Nothing where it saves next to nothing.
std::optional<Remedy> remedy_of(const Prediction& before, const Prediction& after) {
  Remedy remedy;
  remedy.saves = before.device_used.expected - after.device_used.expected;
  if (remedy.saves.count <= before.device_used.expected.count / kLeastPart) return std::nullopt;
  remedy.peak_allocated = after.peak_allocated;
  remedy.device_used = after.device_used;
  remedy.verdict = after.verdict;
  return remedy;
}

// What is divided stays so: the words of --method say both.
std::string flags_of(const Scenario& scenario, const char* change) {
  constexpr std::string_view kMethod = "--method ";
  std::string flags = change;
  if (!flags.starts_with(kMethod)) return flags;
  const size_t end = std::min(flags.find(' ', kMethod.size()), flags.size());
  return flags.insert(end, division_words(scenario.question));
}

std::optional<Attempt> with_flags(const Scenario& scenario, const std::string& flags) {
  FitQuestion question = scenario.question;
  // What followed from the method may not follow from the one that the flags name.
  if (!question.given.contains("dtype")) question.dtype = FitQuestion().dtype;
  if (!apply_flags(question, flags)) return std::nullopt;
  return attempt(scenario, question);
}

std::optional<TriedRemedy> try_flags(const Scenario& scenario, const Change& change,
                                     const Prediction& before) {
  if (!change.when(scenario.question)) return std::nullopt;
  std::string flags = flags_of(scenario, change.flags);
  std::optional<Attempt> after = with_flags(scenario, flags);
  if (!after && change.flags_else != nullptr) {
    flags = flags_of(scenario, change.flags_else);
    after = with_flags(scenario, flags);
  }
  if (!after) return std::nullopt;
  std::optional<Remedy> remedy = remedy_of(before, after->prediction);
  if (!remedy) return std::nullopt;
  remedy->name = change.name;
  remedy->title = change.title;
  remedy->flag = flags;
  remedy->how = change.how;
  remedy->cost = change.cost;
  // Each size of a traced model is a trace of its own: too much for every remedy.
  const bool asks_batch = !scenario.traced;
  return TriedRemedy{std::move(*remedy), std::move(after->scenario), std::move(after->prediction),
                     asks_batch};
}

// Half the micro-batch, twice the accumulation: the same batch for the optimizer.
std::optional<TriedRemedy> try_accumulation(const Scenario& scenario, const Prediction& before) {
  FitQuestion question = scenario.question;
  if (question.batch < 2 || question.batch % 2 != 0) return std::nullopt;
  question.batch /= 2;
  question.grad_accum *= 2;
  std::optional<Attempt> after = attempt(scenario, question);
  if (!after) return std::nullopt;
  auto remedy = remedy_of(before, after->prediction);
  if (!remedy) return std::nullopt;
  remedy->name = "accumulate";
  remedy->title = "half the micro-batch, accumulated twice";
  remedy->flag = "--batch " + std::to_string(question.batch) + " --grad-accum " +
                 std::to_string(question.grad_accum);
  remedy->how = question.megatron
                    ? "give Megatron-LM --micro-batch-size " + std::to_string(question.batch)
                    : "gradient_accumulation_steps=" + std::to_string(question.grad_accum);
  remedy->cost = "smaller matrix products";
  return TriedRemedy{std::move(*remedy), std::move(after->scenario), std::move(after->prediction)};
}

// Changes of Megatron-LM's own arguments; of ours, those that are about the allocator.
std::optional<TriedRemedy> try_megatron(const Scenario& scenario, const MegatronChange& change,
                                        const Prediction& before) {
  if (!scenario.question.megatron || !change.when(scenario.question)) return std::nullopt;
  FitQuestion question = scenario.question;
  change.make(question);
  std::optional<Attempt> after = attempt(scenario, question);
  if (!after) return std::nullopt;
  std::optional<Remedy> remedy = remedy_of(before, after->prediction);
  if (!remedy) return std::nullopt;
  remedy->name = change.name;
  remedy->title = change.title;
  remedy->flag = change.flags;
  remedy->how = "give Megatron-LM " + std::string(change.arguments);
  remedy->cost = change.cost;
  return TriedRemedy{std::move(*remedy), std::move(after->scenario), std::move(after->prediction),
                     true};
}

bool is_of_the_allocator(const Change& change) {
  return std::string_view(change.flags).starts_with("--allocator");
}

}  // namespace

RemedySearch::RemedySearch(const Scenario& scenario, const Prediction& before)
    : scenario_(scenario), before_(before), tried_(std::size(kChanges) + 1 + kMegatronChanges) {}

void RemedySearch::try_change(size_t i) {
  if (i < std::size(kChanges)) {
    const Change& change = kChanges[i];
    if (scenario_.question.megatron && !is_of_the_allocator(change)) return;
    tried_[i] = try_flags(scenario_, change, before_);
  } else if (i == std::size(kChanges)) {
    tried_[i] = try_accumulation(scenario_, before_);
  } else {
    tried_[i] = try_megatron(scenario_, megatron_change(i - std::size(kChanges) - 1), before_);
  }
}

size_t RemedySearch::choose_batches(std::optional<size_t> most) {
  std::vector<Bytes> savings;
  for (const auto& tried : tried_) {
    if (tried) savings.push_back(tried->remedy.saves);
  }
  std::ranges::sort(savings, std::greater());
  const bool is_cut = most && *most < savings.size();
  const Bytes least = !is_cut ? Bytes(0) : *most == 0 ? Bytes(INT64_MAX) : savings[*most - 1];
  for (auto& tried : tried_) {
    if (tried && tried->asks_batch && tried->remedy.saves >= least) batches_.push_back(&*tried);
  }
  return batches_.size();
}

void RemedySearch::find_batch(size_t i) {
  TriedRemedy& tried = *batches_[i];
  const auto largest = largest_batch(tried.scenario, tried.prediction);
  if (largest) tried.remedy.largest_batch = *largest;
}

std::vector<Remedy> RemedySearch::found() && {
  std::vector<Remedy> remedies;
  for (auto& tried : tried_) {
    if (tried) remedies.push_back(std::move(tried->remedy));
  }
  std::ranges::stable_sort(remedies,
                           [](const Remedy& a, const Remedy& b) { return a.saves > b.saves; });
  return remedies;
}

}  // namespace headroom::fit
