// `headroom bench decode MODEL`: the memory-gap paper's experiment, measured here or predicted.
#pragma once

#include "cli/console.h"
#include "cli/flags.h"

namespace headroom::cli {

Result<int> run_bench_decode(const Words& words, const Console& console);

}  // namespace headroom::cli
