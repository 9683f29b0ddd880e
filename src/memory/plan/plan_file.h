// Plan files: `headroom-plan 3` (docs/formats/plan.md), binary, little-endian, checksummed.
//
// Read by a runtime without libraries, perhaps on another machine: no size in a file is believed
// before it is compared with what is there, memory stays within a few times the file's size, and a
// plan that the checker refuses is not returned. Pure; linear but for the checker.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "memory/plan/memory_plan.h"

namespace headroom::memory {

// The checker's Error where the plan is wrong: nothing wrong is ever written.
Result<std::string> plan_file(const MemoryPlan& plan);

// REQUIRES nothing of `bytes`. `name` is for errors.
Result<MemoryPlan> parse_plan_file(std::string_view bytes, const std::string& name);

// The same without heading and checksum (what lies between them), for tests.
Result<MemoryPlan> parse_plan_payload(std::string_view payload, const std::string& name);

// The same from a file ("-" is standard input).
Result<MemoryPlan> read_plan_file(const std::string& path);

}  // namespace headroom::memory
