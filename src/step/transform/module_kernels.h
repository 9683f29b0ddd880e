// ModuleKernels: writes a graph again with fused operators in the place of the modules that
// module_patterns.h finds. Which operators those are, the transformation says that uses it.
//
// The fused operator stands where the module's first plain one stood, and its output is handed on
// where the last one's was. One use each; not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "step/transform/graph_rewriter.h"
#include "step/transform/module_patterns.h"

namespace headroom::step {

// What stands for a module; an empty function leaves such modules as they are.
struct ModuleReplacements {
  using Builder = model::GraphBuilder;
  std::function<model::Var(Builder& g, model::Var input, model::Var weight)> norm;
  std::function<std::pair<model::Var, model::Var>(Builder& g, model::Var query, model::Var key,
                                                  model::Var cos, model::Var sin)>
      rotary;
  std::function<model::Var(Builder& g, model::Var gate, model::Var up)> gated;
};

[[nodiscard]] model::Graph replace_modules(const model::Graph& graph,
                                           const ModuleReplacements& replacements);

}  // namespace headroom::step
