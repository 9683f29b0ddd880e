// An answer of `headroom batch` as JSON, schema headroom.batch/1.
#pragma once

#include "batch/answer.h"
#include "text/json.h"

namespace headroom::report {

[[nodiscard]] text::Json batch_json(const batch::BatchAnswer& answer);

}  // namespace headroom::report
