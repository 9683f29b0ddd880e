// The judge of packing solutions: written from the definition, sharing no code with what makes
// them.
//
// Every plan goes through here before it is reported or written. O(n log n); pure.
#pragma once

#include "base/result.h"
#include "memory/packing/problem.h"

namespace headroom::memory {

// Checks that there is one offset a request, none negative, each a multiple of the alignment, that
// no two requests that live at one moment share a byte, and that `bytes` is the highest end. The
// error names the requests by their indices.
Result<void> validate_packing(const PackingProblem& problem, const PackingSolution& solution);

}  // namespace headroom::memory
