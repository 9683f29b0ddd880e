#include "fit/paged_states.h"

#include "base/units.h"
#include "step/optimizer.h"

namespace headroom::fit {

// Unified memory (cudaMallocManaged in bitsandbytes' pythonInterface.cpp): its pages are where they
// were used last, and give way to whatever else asks for the device's memory.
std::string note_on_paged_states(const Scenario& scenario, const model::Graph& graph) {
  const step::OptimizerOptions& options = scenario.train.optimizer;
  if (options.kind != step::OptimizerKind::bitsandbytes || !options.bitsandbytes.is_paged) {
    return {};
  }
  const std::string where =
      "of parameters with 100,000 elements or more are paged: on the GPU while there is room, else "
      "in the host's memory, and in none of the figures";
  const Division division = scenario.question.division;
  const bool is_whole = division == Division::none || division == Division::ddp;
  if (!is_whole || scenario.question.tensor_ranks > 1) return "states " + where;
  int64_t bytes = 0;
  for (const model::Parameter& parameter : graph.parameters) {
    if (!parameter.trainable || parameter.tied_to) continue;
    bytes += step::paged_bytes(options, op::product(parameter.shape),
                               parameter.role == model::ParameterRole::embedding);
  }
  if (bytes == 0) {
    return "no parameter has the 100,000 elements from which the optimizer pages its states";
  }
  return format_bytes(Bytes(bytes)) + " of states " + where;
}

}  // namespace headroom::fit
