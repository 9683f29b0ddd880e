#include "memory/plan/servable_plan.h"

#include <algorithm>

#include "memory/plan/plan_file.h"

namespace headroom::memory {

Result<MemoryPlan> read_servable_plan(const std::string& path) {
  HEADROOM_ASSIGN(MemoryPlan plan, read_plan_file(path));
  if (plan.alignment % kServedAlignment != 0) {
    return Error{ErrorCode::bad_input,
                 "the plan is made for an alignment of " + std::to_string(plan.alignment) +
                     " B, which is no multiple of " + std::to_string(kServedAlignment) + " B",
                 path, "make it from a recording of PyTorch's allocator or of `headroom run`"};
  }
  const bool has_slots =
      std::any_of(plan.signatures.begin(), plan.signatures.end(),
                  [](const SignaturePlan& signature) { return !signature.slots.empty(); });
  if (!has_slots) {
    return Error{ErrorCode::bad_input, "the plan has no slots", path,
                 "make another from a recording of whole iterations"};
  }
  return plan;
}

}  // namespace headroom::memory
