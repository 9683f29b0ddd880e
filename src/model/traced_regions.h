// Layers, lm_head and loss of a traced module, and the order of its instructions.
//
// A trace knows only module paths. A layer is an entry of a list (path "X.3") that has modules of
// its own and siblings of the same class, runs once, and has nothing else between its operators;
// that is what checkpointing and labels work on. Internal to the reading of traces
// (traced_graph.cpp).
#pragma once

#include <string>
#include <vector>

#include "model/graph.h"

namespace headroom::model {

struct TracedModule {
  std::string name;
  std::string kind;  // its Python class
};

inline constexpr uint32_t kNoOperation = UINT32_MAX;

// One line of the trace: an operation, or none where nothing on the device happened, and the values
// that Python let go after it.
struct TracedStep {
  uint32_t operation = kNoOperation;
  std::string module;
  std::vector<ValueId> drops;
};

struct TracedParts {
  std::vector<TracedModule> modules;
  std::vector<TracedStep> steps;
  uint32_t lm_head = kNoOperation;  // step of the product that makes the logits
  uint32_t loss = kNoOperation;     // first step of the loss
  std::vector<bool> permanent;      // by value: parameters, buffers, inputs
};

// Fills graph.instructions, graph.regions and graph.modules from the operations that are there.
void arrange(const TracedParts& parts, Graph& graph);

}  // namespace headroom::model
