#include "engines/deepspeed.h"

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
  if (stage != 1 && stage != 2) return zero.error_at("stage", "is not modelled", "1 or 2");
  setup.sharing = stage == 1 ? Sharing::zero1 : Sharing::zero2;
  for (const char* key : {"offload_optimizer", "offload_param"}) {
    HEADROOM_ASSIGN(const auto part, zero.optional_object(key));
    if (!part) continue;
    HEADROOM_ASSIGN(const auto device, part->optional_string("device"));
    if (device.value_or("none") != "none")
      return part->error_at("device", "is not modelled", "none");
  }
  HEADROOM_ASSIGN(setup.reduce_bucket_size, count_of(zero, "reduce_bucket_size"));
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
  return {};
}

}  // namespace

Result<TrainingSetup> read_deepspeed(const JsonView& root) {
  TrainingSetup setup;
  setup.counted_by =
      "train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps together";
  HEADROOM_ASSIGN(const JsonView zero, root.get_object("zero_optimization"));
  HEADROOM_TRY(read_zero(zero, setup));
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
  Json zero = Json::object()
                  .set("stage", setup.sharing == Sharing::zero1 ? 1 : 2)
                  .set("reduce_bucket_size", setup.reduce_bucket_size.value_or(500'000'000))
                  .set("overlap_comm", setup.overlap_comm.value_or(false))
                  .set("contiguous_gradients", true)
                  .set("reduce_scatter", true);
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
