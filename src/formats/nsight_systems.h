// Exports of NVIDIA Nsight Systems: `nsys export --type sqlite`.
//
// Kernels, copies and fills with their stream, CUDA calls, graphs that were recorded as a whole,
// and NVTX ranges: those of torch.autograd.profiler.emit_nvtx are operators, with their sizes; a
// range named "step 3" or "iteration 3" is a step; others are annotations. Tables and columns by
// NVIDIA's "SQLite Schema Reference" (docs.nvidia.com/nsight-systems, User Guide), whose own advice
// is to look for what is there: tables are made only where there is something to put in, and
// columns come and go. No recorded file was at hand: the test's is made from that page
// (tests/data/make_databases.py). Waits between streams are left to `ops`, which infers them.
// A report may hold several processes: a kernel is of its own process's call.
// Blocking, any thread.
#pragma once

#include "base/result.h"
#include "formats/sqlite_file.h"
#include "formats/trace_builder.h"

namespace headroom::formats {

[[nodiscard]] bool is_nsight_systems(const SqliteFile& file);

Result<Trace> read_nsight_systems(const SqliteFile& file, const TraceLimits& limits = {});

}  // namespace headroom::formats
