// `--emit torchtitan=FILE`: a question's setting as a script that starts torchtitan.
#pragma once

#include "base/result.h"
#include "fit/answer.h"
#include "fit/question.h"

namespace headroom::fit {

struct EmitRequest;

// fully_shard of a whole model in bf16 or float32, recomputed as torchtitan does.
[[nodiscard]] bool torchtitan_can_say(const FitQuestion& question);

// Writes the file; what it says otherwise than the question is in Emitted::by_hand. The Error is
// about a model that torchtitan has no configuration of. REQUIRES: torchtitan_can_say().
Result<Emitted> emit_torchtitan(const FitQuestion& question, const EmitRequest& request);

}  // namespace headroom::fit
