// `headroom bench device`: what this machine's operators cost, measured.
#pragma once

#include "cli/console.h"
#include "cli/flags.h"

namespace headroom::cli {

// The value of --on, or what it takes.
Result<std::string> device_of_torch(std::string name);

Result<int> run_bench_device(const Words& words, const Console& console);

}  // namespace headroom::cli
