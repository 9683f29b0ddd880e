// Which flags of `headroom batch` go together.
#pragma once

#include "base/result.h"
#include "cli/flags.h"

namespace headroom::cli {

// A usage error for a flag that would have no effect beside the others, or without another: before
// anything is read or measured.
Result<void> check_batch_flags(const Words& words);

}  // namespace headroom::cli
