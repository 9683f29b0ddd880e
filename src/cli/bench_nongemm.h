// `headroom bench nongemm`: the share of non-GEMM work in models as they run here.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/console.h"
#include "cli/flags.h"

namespace headroom::cli {

Result<int> run_bench_nongemm(const Words& words, const Console& console);
// Several machines' records side by side.
Result<int> run_bench_merge(const Words& words, const Console& console);

// "1,8,64", of `bench`'s flag --batches.
Result<std::vector<int64_t>> batches_of(std::string_view words);

}  // namespace headroom::cli
