#include "engines/deepspeed.h"

#include <algorithm>
#include <array>

#include "base/units.h"
#include "engines/shell_words.h"

namespace headroom::engines {

namespace {

using text::Json;
using text::JsonView;

constexpr int64_t kMostCount = 1'000'000'000'000;

// A member that is neither missing nor left to the Trainer.
bool is_said(const JsonView& view, std::string_view key) {
  const Json* member = view.json().find(key);
  return member != nullptr && !member->is_null() && !(*member == Json("auto"));
}

Result<std::optional<int64_t>> count_of(const JsonView& view, std::string_view key) {
  if (!is_said(view, key)) return std::optional<int64_t>();
  return view.optional_int(key, 1, kMostCount);
}

// A count that "auto" leaves to the model's hidden size.
Result<std::optional<int64_t>> elements_of(const JsonView& view, std::string_view key,
                                           bool may_be_of_hidden_size, int64_t least) {
  const Json* member = view.json().find(key);
  if (member == nullptr || member->is_null()) return std::optional<int64_t>();
  if (*member == Json("auto")) {
    return may_be_of_hidden_size ? std::optional(kOfHiddenSize) : std::nullopt;
  }
  return view.optional_int(key, least, kMostCount);
}

// The third stage's members may leave out their beginning (runtime/zero/config.py: aliases).
std::string_view stage3_key(const JsonView& zero, std::string_view key) {
  constexpr std::string_view kBeginning = "stage3_";
  if (!key.starts_with(kBeginning) || zero.has(key)) return key;
  const std::string_view rest = key.substr(kBeginning.size());
  return zero.has(rest) ? rest : key;
}

// What changes what a rank holds under the third stage, and nobody has modelled: on, or above what
// is its default.
Result<void> check_stage3(const JsonView& zero) {
  for (const char* name :
       {"zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients",
        "stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential"}) {
    const std::string_view key = stage3_key(zero, name);
    if (!is_said(zero, key)) continue;
    HEADROOM_ASSIGN(const bool is_on, zero.get_bool(key));
    if (is_on) return zero.error_at(key, "is not modelled", "false");
  }
  for (const auto& [name, most] :
       {std::pair{"zero_hpz_partition_size", 1},
        std::pair{"stage3_module_granularity_threshold", 0}, std::pair{"mics_shard_size", 0}}) {
    const std::string_view key = stage3_key(zero, name);
    if (!is_said(zero, key)) continue;
    HEADROOM_ASSIGN(const int64_t count, zero.get_int(key, -1, kMostCount));
    if (count > most) return zero.error_at(key, "is not modelled", std::to_string(most));
  }
  for (const char* name : {"stage3_model_persistence_threshold", "leaf_module", "zenflow"}) {
    const std::string_view key = stage3_key(zero, name);
    if (is_said(zero, key)) return zero.error_at(key, "is not modelled", "leave it out");
  }
  if (is_said(zero, "memory_efficient_linear")) {
    HEADROOM_ASSIGN(const bool is_on, zero.get_bool("memory_efficient_linear"));
    if (!is_on) {
      return zero.error_at("memory_efficient_linear", "false is not modelled", "true, the default");
    }
  }
  return {};
}

Result<void> read_stage3(const JsonView& zero, TrainingSetup& setup) {
  HEADROOM_TRY(check_stage3(zero));
  for (size_t i = 0; i < kStage3Counts.size(); ++i) {
    const Stage3Count& count = kStage3Counts[i];
    const std::string_view key = stage3_key(zero, count.key);
    const Json* member = zero.json().find(key);
    // Groups of no elements have one parameter each, as those of one element have
    // (runtime/zero/stage3.py, _create_fp16_sub_groups).
    if (count.least == 1 && member != nullptr && *member == Json(0)) {
      setup.stage3[i] = 1;
      continue;
    }
    HEADROOM_ASSIGN(setup.stage3[i], elements_of(zero, key, count.takes_auto(), count.least));
  }
  return {};
}

// Whether a part of the state is on the CPU; nothing where the file does not say.
Result<std::optional<bool>> offload_of(const JsonView& zero, std::string_view key) {
  HEADROOM_ASSIGN(const auto part, zero.optional_object(key));
  if (!part) return std::optional<bool>();
  HEADROOM_ASSIGN(const auto device, part->optional_string("device"));
  if (device.value_or("none") == "none") return std::optional(false);
  if (*device != "cpu") return part->error_at("device", "is not modelled", "cpu, or none");
  HEADROOM_ASSIGN(const auto ratio, part->optional_double("ratio", 0, 1));
  if (ratio.value_or(1) < 1) return part->error_at("ratio", "is not modelled", "1");
  for (const auto& [name, is_wanted] :
       {std::pair{"pin_memory", true}, std::pair{"super_offload", false}}) {
    HEADROOM_ASSIGN(const auto is_on, part->optional_bool(name));
    if (is_on.value_or(is_wanted) != is_wanted) {
      return part->error_at(name, "is not modelled", is_wanted ? "true, the default" : "false");
    }
  }
  return std::optional(true);
}

Result<void> read_offload(const JsonView& zero, TrainingSetup& setup) {
  for (const char* key : {"cpu_offload", "cpu_offload_param"}) {
    if (is_said(zero, key)) {
      return zero.error_at(key, "is deprecated", "offload_optimizer, or offload_param");
    }
  }
  HEADROOM_ASSIGN(setup.offloads_optimizer, offload_of(zero, "offload_optimizer"));
  HEADROOM_ASSIGN(setup.offloads_parameters, offload_of(zero, "offload_param"));
  if (setup.offloads_parameters.value_or(false) && setup.sharing != Sharing::zero3) {
    return zero.error_at("offload_param", "is of stage 3", "leave it out");
  }
  return {};
}

Json offload_json() { return Json::object().set("device", "cpu").set("pin_memory", true); }

Json elements_json(int64_t elements) {
  return elements == kOfHiddenSize ? Json("auto") : Json(elements);
}

Result<void> read_halves(const JsonView& root, TrainingSetup& setup) {
  setup.weights = Half::none;
  bool is_left_open = false;  // to the Trainer, unless the other is on
  for (const auto& [key, half] : {std::pair{"bf16", Half::bf16}, std::pair{"fp16", Half::fp16}}) {
    HEADROOM_ASSIGN(const auto part, root.optional_object(key));
    if (!part) continue;
    if (!is_said(*part, "enabled")) {
      is_left_open = true;
      continue;
    }
    HEADROOM_ASSIGN(const bool is_on, part->get_bool("enabled"));
    if (is_on) setup.weights = half;
  }
  if (is_left_open && setup.weights == Half::none) setup.weights.reset();
  return {};
}

Result<void> read_zero(const JsonView& zero, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const int64_t stage, zero.get_int("stage", 0, 3));
  if (stage == 0) return zero.error_at("stage", "is not modelled", "1, 2 or 3");
  setup.sharing = stage == 1 ? Sharing::zero1 : stage == 2 ? Sharing::zero2 : Sharing::zero3;
  if (stage == 3) HEADROOM_TRY(read_stage3(zero, setup));
  HEADROOM_TRY(read_offload(zero, setup));
  HEADROOM_ASSIGN(setup.reduce_bucket_size, elements_of(zero, "reduce_bucket_size", true, 1));
  if (is_said(zero, "overlap_comm")) {
    HEADROOM_ASSIGN(setup.overlap_comm, zero.optional_bool("overlap_comm"));
  }
  for (const char* key :
       {"contiguous_gradients", "reduce_scatter", "use_multi_rank_bucket_allreduce"}) {
    if (!is_said(zero, key)) continue;
    HEADROOM_ASSIGN(const bool is_on, zero.get_bool(key));
    if (!is_on) return zero.error_at(key, "false is not modelled", "true, which is the default");
  }
  return {};
}

// What is compiled by DeepSpeed itself, and tensor parallelism.
Result<void> check_engine(const JsonView& root) {
  HEADROOM_ASSIGN(const auto compile, root.optional_object("compile"));
  if (compile && is_said(*compile, "deepcompile")) {
    HEADROOM_ASSIGN(const bool is_on, compile->get_bool("deepcompile"));
    if (is_on) return compile->error_at("deepcompile", "is not modelled", "false");
  }
  HEADROOM_ASSIGN(const auto part, root.optional_object("tensor_parallel"));
  if (!part || !is_said(*part, "autotp_size")) return {};
  HEADROOM_ASSIGN(const int64_t ranks, part->get_int("autotp_size", 0, kMostDevices));
  if (ranks > 1) return part->error_at("autotp_size", "is not modelled", "leave it out");
  return {};
}

// train_batch_size = micro-batch x accumulation x GPUs
Result<void> read_ranks(const JsonView& root, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto whole, count_of(root, "train_batch_size"));
  if (!whole || !setup.batch || !setup.grad_accum) return {};
  const auto each = checked_multiply(*setup.batch, *setup.grad_accum);
  if (!each || *whole % *each != 0 || *whole / *each > kMostDevices) {
    return root.error_at("train_batch_size",
                         "is no multiple of train_micro_batch_size_per_gpu x "
                         "gradient_accumulation_steps");
  }
  setup.ranks = *whole / *each;
  setup.is_counted = true;
  return {};
}

}  // namespace

Result<TrainingSetup> read_deepspeed(const JsonView& root) {
  TrainingSetup setup;
  setup.counted_by =
      "train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps together";
  HEADROOM_ASSIGN(const JsonView zero, root.get_object("zero_optimization"));
  HEADROOM_TRY(read_zero(zero, setup));
  HEADROOM_TRY(check_engine(root));
  HEADROOM_TRY(read_halves(root, setup));
  HEADROOM_ASSIGN(setup.batch, count_of(root, "train_micro_batch_size_per_gpu"));
  HEADROOM_ASSIGN(setup.grad_accum, count_of(root, "gradient_accumulation_steps"));
  if (is_said(root, "gradient_clipping")) {
    HEADROOM_ASSIGN(setup.clip, root.optional_double("gradient_clipping", 0, 1e30));
    if (*setup.clip == 0) setup.clip.reset();
  }
  HEADROOM_TRY(read_ranks(root, setup));
  return setup;
}

std::string deepspeed_json(const TrainingSetup& setup) {
  const int64_t batch = setup.batch.value_or(1);
  const int64_t accumulation = setup.grad_accum.value_or(1);
  const Half half = setup.weights.value_or(Half::none);
  const bool is_third = setup.sharing == Sharing::zero3;
  Json zero =
      Json::object()
          .set("stage", is_third                          ? 3
                        : setup.sharing == Sharing::zero1 ? 1
                                                          : 2)
          .set("reduce_bucket_size", elements_json(setup.reduce_bucket_size.value_or(500'000'000)))
          .set("overlap_comm", setup.overlap_comm.value_or(is_third))
          .set("contiguous_gradients", true)
          .set("reduce_scatter", true);
  if (setup.offloads_optimizer.value_or(false)) zero.set("offload_optimizer", offload_json());
  if (setup.offloads_parameters.value_or(false)) zero.set("offload_param", offload_json());
  for (size_t i = 0; is_third && i < kStage3Counts.size(); ++i) {
    if (setup.stage3[i]) zero.set(kStage3Counts[i].key, elements_json(*setup.stage3[i]));
  }
  Json root = Json::object()
                  .set("train_batch_size", batch * accumulation * setup.ranks)
                  .set("train_micro_batch_size_per_gpu", batch)
                  .set("gradient_accumulation_steps", accumulation)
                  .set("gradient_clipping", setup.clip.value_or(0))
                  .set("bf16", Json::object().set("enabled", half == Half::bf16))
                  .set("fp16", Json::object().set("enabled", half == Half::fp16))
                  .set("zero_optimization", std::move(zero));
  return root.dump(2) + "\n";
}

std::string deepspeed_line(const TrainingSetup& setup, const std::string& file) {
  std::string line = "torchrun --nproc_per_node " + std::to_string(setup.ranks / setup.nodes);
  if (setup.nodes > 1) {
    line += " --nnodes " + std::to_string(setup.nodes) +
            " --node_rank $NODE_RANK --master_addr $HEAD_NODE --master_port 29500";
  }
  return line + " train.py --deepspeed " + shell_word(file);
}

}  // namespace headroom::engines
