#include "fit/step_plan.h"

#include "base/check.h"
#include "formats/packing_csv.h"
#include "memory/packing/plan_synthesizer.h"
#include "memory/packing/validator.h"
#include "memory/planned_replay.h"

namespace headroom::fit {

Result<std::string> placements_of(const step::StepTrace& trace) {
  formats::PackingInstance instance;
  instance.problem = memory::packing_problem_of(trace.memory);
  HEADROOM_TRY(memory::check_problem(instance.problem));
  for (const memory::BufferInfo& buffer : trace.memory.buffers) {
    const std::string& module = trace.modules[buffer.label];
    std::string id(memory::category_name(buffer.category));
    if (!module.empty()) id += " " + module;
    instance.ids.push_back(std::move(id));
  }
  const memory::PackingSolution solution =
      memory::PlanSynthesizer({}).synthesize(instance.problem).solution;
  HEADROOM_CHECK(memory::validate_packing(instance.problem, solution),
                 "a plan that the validator refuses");
  // The plan keeps a place from the beginning on for what is never released. The table says when
  // each was really asked for, so that allocators which are held against the plan meet the step's
  // order.
  const auto& events = trace.memory.events;
  for (size_t i = 0; i < events.size(); ++i) {
    const bool is_planned = trace.memory.buffers[events[i].buffer].stream == 0;
    if (events[i].kind != memory::EventKind::alloc || !is_planned) continue;
    instance.problem.requests[events[i].buffer].lower = static_cast<int64_t>(i);
  }
  HEADROOM_CHECK(memory::validate_packing(instance.problem, solution),
                 "a shorter life breaks no plan");
  return formats::placements_csv(instance, solution);
}

}  // namespace headroom::fit
