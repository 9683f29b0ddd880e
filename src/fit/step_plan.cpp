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
  return formats::placements_csv(instance, solution);
}

}  // namespace headroom::fit
