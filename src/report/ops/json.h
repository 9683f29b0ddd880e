// An ops answer as JSON: `headroom.ops/1`.
#pragma once

#include "ops/answer.h"
#include "text/json.h"

namespace headroom::report {

[[nodiscard]] text::Json ops_json(const ops::OpsAnswer& answer);

}  // namespace headroom::report
