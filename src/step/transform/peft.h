// What all adapters of the peft library share: which modules get one, by whose choice, and what a
// wrapped model's parameters are called.
//
// Source: peft/tuners/tuners_utils.py (check_target_module_exists, "all-linear") and
// utils/constants.py (targets by architecture), peft 0.21.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/graph.h"
#include "step/transform/linear_site.h"

namespace headroom::step {

// The module names that peft takes for an architecture where the user names none.
struct ArchitectureTargets {
  std::string_view model_type;
  std::array<std::string_view, 4> targets;
};

// Of the row for `model_type`; empty where there is none.
[[nodiscard]] std::vector<std::string> targets_for(std::span<const ArchitectureTargets> table,
                                                   std::string_view model_type);

// The linear modules with one of these names, in the order they run; "all-linear" alone is every
// one but the head. Errors: no name, since peft knows none for `model_type`; no module of these
// names; one that is an embedding or shares another's weight.
[[nodiscard]] Result<std::vector<LinearSite>> adapter_sites(const model::Graph& graph,
                                                            const std::vector<std::string>& targets,
                                                            std::string_view model_type);

// Where a parameter of a PeftModel stands: in which module of the model that was wrapped, and as
// what.
struct PeftPlace {
  enum class Part : uint8_t { base, lora_a, lora_b, other_adapter };
  std::string module;  // "model.layers.0.self_attn.q_proj"
  Part part = Part::base;
};
// Of a parameter of any other model, its module as it is.
[[nodiscard]] PeftPlace peft_place(const model::Parameter& parameter);

// Freezes what is no adapter, and names everything as in a PeftModel; `modules` are those that are
// wrapped. With `trains_head` a model that classifies sequences trains a copy of its head, as
// peft's task SEQ_CLS has it, and keeps the frozen one beside it.
void name_as_peft_does(model::Graph& graph, std::vector<std::string> modules, bool trains_head);

}  // namespace headroom::step
