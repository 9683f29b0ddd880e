// The explanation of out-of-memory messages as JSON: schema "headroom.oom/1".
//
// Pure, thread-safe.
#pragma once

#include "pack/oom.h"
#include "text/json.h"

namespace headroom::report {

[[nodiscard]] text::Json oom_json(const pack::OomAnswer& answer);

}  // namespace headroom::report
