// LinearSite: where a graph calls a linear module, for transformations that put another module in
// its place (LoRA, quantized weights).
//
// A torch.nn.Linear is one `linear`. transformers' Conv1D (GPT-2, GPT-BigCode) is a view to rows,
// an `addmm` and a view back; its site ends at that last view. Falcon adds its bias in a step of
// its own, where the site ends. A quantized one is a `quantized_linear`.
#pragma once

#include <optional>
#include <vector>

#include "model/graph.h"

namespace headroom::step {

struct LinearSite {
  uint32_t first = 0;           // operation that takes what the module is called with
  uint32_t product = 0;         // operation: the linear, or the addmm
  uint32_t last = 0;            // operation whose output is the module's
  uint32_t weight = 0;          // parameter
  uint32_t last_parameter = 0;  // parameter: the bias where there is one, else the weight
  model::ValueId input = 0;     // what the module is called with
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool conv1d = false;  // the weight lies as [in, out]
  // Never called (a tower of images, in a step on text): no operation and no input are named.
  bool is_idle = false;
};

// All of them, in the order they run. A module that is called twice has two.
[[nodiscard]] std::vector<LinearSite> linear_sites(const model::Graph& graph);

// The modules that a graph has and never calls, in the order of its parameters: what stands for
// them holds memory all the same.
[[nodiscard]] std::vector<LinearSite> idle_linear_sites(const model::Graph& graph);

// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
[[nodiscard]] std::string module_of(const std::string& parameter);

// peft's rule: the name itself, or its end behind a dot.
[[nodiscard]] bool names_module(const std::string& target, const std::string& module);

}  // namespace headroom::step
