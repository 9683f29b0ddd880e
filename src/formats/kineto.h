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
#include "formats/trace.h"
#include "text/byte_feed.h"

namespace headroom::formats {

struct KinetoLimits {
  size_t events = 50'000'000;           // kept
  size_t names = 2'000'000;             // different ones
  size_t name_bytes = size_t{1} << 30;  // of them together
  size_t name = size_t{1} << 16;        // of one; longer ones are cut
};

// Not JSON, no "traceEvents", no event that can be read, or more than the limits is an Error.
Result<Trace> read_kineto(text::ByteFeed feed, const KinetoLimits& limits = {});
Result<Trace> read_kineto(const std::string& path, const KinetoLimits& limits = {});

}  // namespace headroom::formats
