// `--emit torchtitan=FILE`: a question's setting as a script that starts torchtitan.
#pragma once

#include "base/result.h"
#include "fit/answer.h"
#include "fit/question.h"

namespace headroom::fit {

struct EmitRequest;

// fully_shard of a whole model in bf16 or float32, recomputed as torchtitan does. The Error says
// what of the question it has no words for.
Result<void> check_torchtitan(const FitQuestion& question);

// Writes the file; what it says otherwise than the question is in Emitted::by_hand.
// REQUIRES: check_torchtitan().
Result<Emitted> emit_torchtitan(const FitQuestion& question, const EmitRequest& request);

}  // namespace headroom::fit
