// Traces of PyTorch's profiler: the Chrome trace that Kineto writes, .json or .json.gz.
//
// CUDA and ROCm, the layouts since 2021 (whole microseconds or fractions, async_cpu_to_gpu or ac2g,
// "Kernel" or "kernel"), with or without operators, with or without a device; sources:
// pytorch/kineto, libkineto/src/output_json.cpp and ActivityType.h, and recorded files. Streams: a
// file of gigabytes costs 48 bytes for each event that is kept. Operators, annotations, runtime and
// driver calls, kernels, copies, fills and waits between streams are kept; Python frames, memory
// records and flow arrows are not. An event that cannot be read is recorded with its place, and the
// reading goes on. Blocking, any thread; about 500 MB/s unpacked.
#pragma once

#include <string>

#include "base/result.h"
#include "formats/trace_builder.h"
#include "text/byte_feed.h"

namespace headroom::formats {

// Not JSON, no "traceEvents", no event that can be read, or more than the limits is an Error.
Result<Trace> read_kineto(text::ByteFeed feed, const TraceLimits& limits = {});
Result<Trace> read_kineto(const std::string& path, const TraceLimits& limits = {});

}  // namespace headroom::formats
