// Which of bench's flags belong to which of its questions: one table, looked at before anything is
// read or measured, so that no flag is given and does nothing.
#pragma once

#include "base/result.h"
#include "cli/flags.h"

namespace headroom::cli {

// An Error names the flag, and what it is for. REQUIRES: a first operand that bench knows.
Result<void> check_bench_flags(const Words& words);

}  // namespace headroom::cli
