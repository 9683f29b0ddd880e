// TensorPlan: which modules of an architecture tensor parallelism divides among ranks, and how.
//
// Plans are transformers' own where it has one (base_model_tp_plan of the config, _tp_plan of the
// model class; tests/python/test_tensor_parallel.py holds this table against the installed ones).
// For architectures without one the plan is ours, as Megatron-LM would divide them (arXiv
// 1909.08053, section 3), and says so. Constant data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace headroom::step {

// By the words of transformers' ALL_PARALLEL_STYLES.
enum class TensorStyle : uint8_t {
  colwise,                         // a part of the output features; the input is whole
  rowwise,                         // a part of the input features; the output is summed
  colwise_gather_output,           // the parts of the output are put together
  rowwise_split_input,             // of a whole input each rank takes its part
  replicated_with_grad_allreduce,  // whole on every rank, used for a part of the heads
  packed_colwise,                  // colwise of several matrices in one, each divided
};
[[nodiscard]] std::string_view name_of(TensorStyle style);

struct TensorRule {
  std::string_view module;  // the end of its name: "self_attn.q_proj"
  TensorStyle style;
  int64_t packed = 1;  // of packed_colwise: how many
};

struct TensorPlan {
  std::span<const TensorRule> rules;
  bool is_transformers = true;     // false: ours
  bool divides_sequences = false;  // of torchtitan's modules, whatever they are called
};

// Nothing for an architecture that is not known.
[[nodiscard]] std::optional<TensorPlan> tensor_plan(std::string_view model_type);
// The architectures with a plan, transformers' first.
[[nodiscard]] std::span<const std::string_view> planned_architectures();

}  // namespace headroom::step
