#include "memory/packing/plan_synthesizer.h"

#include <algorithm>

#include "memory/packing/component_solver.h"
#include "memory/packing/components.h"

namespace headroom::memory {

Synthesis PlanSynthesizer::synthesize(const PackingProblem& problem) const {
  Synthesis synthesis;
  synthesis.solution.offsets.resize(problem.requests.size());
  std::vector<uint32_t> requests;
  const Sections sections = make_sections(problem, requests);
  synthesis.lower_bound_bytes = sections.highest_load;
  synthesis.proven_bound_bytes = sections.highest_load;
  const int64_t target = std::max(options_.target_bytes, sections.highest_load);

  std::vector<int64_t> offsets(sections.items.size());
  int64_t highest_part = 0;
  synthesis.method = "stacked: there was nothing to choose";
  for (const Component& component : cut_into_components(sections, offsets)) {
    const Sections part = sections_of(sections, component);
    ComponentSolver solver(part, target - component.base, options_);
    solver.solve();
    for (size_t i = 0; i < component.items.size(); ++i) {
      offsets[component.items[i]] = component.base + solver.placement().offsets[i];
    }
    const int64_t top = component.base + solver.placement().height;
    if (top > highest_part) synthesis.method = solver.method();
    highest_part = std::max(highest_part, top);
    synthesis.proven_bound_bytes =
        std::max(synthesis.proven_bound_bytes, component.base + solver.proven_bound());
  }
  for (size_t i = 0; i < offsets.size(); ++i) {
    synthesis.solution.offsets[requests[i]] = offsets[i];
    synthesis.solution.bytes =
        std::max(synthesis.solution.bytes, offsets[i] + sections.items[i].size);
  }
  return synthesis;
}

}  // namespace headroom::memory
