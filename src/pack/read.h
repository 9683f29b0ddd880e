// What pack is given, brought into one form: requests with lifetimes, sizes and streams.
#pragma once

#include <vector>

#include "base/result.h"
#include "pack/answer.h"
#include "pack/pack.h"

namespace headroom::pack {

// Fills everything of the answer that the file itself says: requests, kind, what was recorded,
// notes.
Result<PackAnswer> read_requests(const PackQuestion& question);

}  // namespace headroom::pack
