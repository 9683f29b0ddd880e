// A fit answer as JSON: schema "headroom.fit/1", the keys that other programs rely on.
//
// Pure, thread-safe, linear in the answer. New keys may come beside the old ones; removing or
// changing one raises the number in the schema.
#pragma once

#include "fit/answer.h"
#include "text/json.h"

namespace headroom::report {

[[nodiscard]] text::Json fit_json(const fit::FitAnswer& answer);
[[nodiscard]] text::Json against_json(const fit::AgainstAnswer& answer);

}  // namespace headroom::report
