// A pack answer as JSON: schema "headroom.pack/1", the keys that other programs rely on.
//
// Pure, thread-safe. The placements are not in it: --placements and --plan write them.
#pragma once

#include "pack/answer.h"
#include "text/json.h"

namespace headroom::report {

[[nodiscard]] text::Json pack_json(const pack::PackAnswer& answer);

}  // namespace headroom::report
