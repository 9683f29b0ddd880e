// The judge of memory plans: from the definition in memory_plan.h, sharing no code with what makes
// them. Every plan goes through here before it is written, and again when it is read.
//
// O(n log n) for slots and places; spaces are tested against the slots of their phase.
#pragma once

#include "base/result.h"
#include "memory/plan/memory_plan.h"

namespace headroom::memory {

// Checks that streams tile the range and everything lies in its stream's part of it; that no two
// slots of a signature that live at one moment share a byte, nor any two that are persistent or
// carried; that offsets are aligned; that no slot lives in a space during its phase; that every
// number is in range. The error says what and where.
Result<void> check_plan(const MemoryPlan& plan);

}  // namespace headroom::memory
