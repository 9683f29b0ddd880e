// A plan file as the allocator of `headroom run` takes it: whole, in units that it can keep to, and
// not empty. The launcher asks first, so that what is no plan is told before the run and not after
// it; the allocator asks again, as files change and ranks have files of their own.
#pragma once

#include <string>

#include "base/result.h"
#include "memory/allocator_settings.h"
#include "memory/plan/memory_plan.h"

namespace headroom::memory {

// The alignment of a plan that is served is a multiple of it: PyTorch's blocks are.
inline constexpr int64_t kServedAlignment = kMinBlockSize;

// REQUIRES nothing of the file. Linear but for the checker (plan_file.h).
Result<MemoryPlan> read_servable_plan(const std::string& path);

}  // namespace headroom::memory
