#include "memory/packing/plan_synthesizer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "memory/packing/component_solver.h"
#include "memory/packing/components.h"
#include "memory/packing/solved_parts.h"

namespace headroom::memory {
namespace {

struct PartPlan {
  Placement placement;
  std::string method;
  int64_t proven_bound = 0;
};

PartPlan solve(const Sections& part, int64_t target, const SynthesisOptions& options) {
  ComponentSolver solver(part, target, options);
  solver.solve();
  return {solver.placement(), solver.method(), solver.proven_bound()};
}

int64_t target_of(const SynthesisOptions& options, int64_t bound) {
  const auto near_enough =
      static_cast<int64_t>(static_cast<double>(bound) * std::max(0.0, options.near_enough));
  return std::max(options.target_bytes, bound + near_enough);
}

}  // namespace

Synthesis PlanSynthesizer::synthesize(const PackingProblem& problem) const {
  Synthesis synthesis;
  synthesis.solution.offsets.resize(problem.requests.size());
  std::vector<uint32_t> requests;
  const Sections sections = make_sections(problem, requests);
  synthesis.lower_bound_bytes = sections.highest_load;
  synthesis.proven_bound_bytes = sections.highest_load;
  const int64_t target = target_of(options_, sections.highest_load);

  std::vector<int64_t> offsets(sections.items.size());
  int64_t highest_part = 0;
  synthesis.method = "stacked: there was nothing to choose";
  SolvedParts<PartPlan> solved;
  for (const Component& component : cut_into_components(sections, offsets)) {
    Sections part = sections_of(sections, component);
    const PartPlan* plan = solved.find(part, component.base);
    if (plan == nullptr) {
      PartPlan made = solve(part, target - component.base, options_);
      plan = &solved.add(std::move(part), component.base, std::move(made));
    }
    for (size_t i = 0; i < component.items.size(); ++i) {
      offsets[component.items[i]] = component.base + plan->placement.offsets[i];
    }
    const int64_t top = component.base + plan->placement.height;
    if (top > highest_part) synthesis.method = plan->method;
    highest_part = std::max(highest_part, top);
    synthesis.proven_bound_bytes =
        std::max(synthesis.proven_bound_bytes, component.base + plan->proven_bound);
  }
  for (size_t i = 0; i < offsets.size(); ++i) {
    synthesis.solution.offsets[requests[i]] = offsets[i];
    synthesis.solution.bytes =
        std::max(synthesis.solution.bytes, offsets[i] + sections.items[i].size);
  }
  return synthesis;
}

}  // namespace headroom::memory
