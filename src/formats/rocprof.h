// JSON of AMD's rocprofv3 (`rocprofv3 --output-format json`): one document, kernels named by their
// symbols.
//
// Dispatches become kernels on their stream (their queue, where no stream is said), copies and HIP
// calls where they were traced; a call and what it put on the device share the internal
// correlation. No operators are in such a file: kernels are sorted by name. Streams; layout as of
// rocprofiler-sdk 1.0 (a recorded file; that one has no calls and no copies, whose fields are taken
// from the SDK's own headers, rocprofiler-sdk/buffer_tracing.h). Blocking, any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "formats/trace_builder.h"
#include "text/byte_feed.h"

namespace headroom::formats {

// Whether the first bytes of an unpacked file look like one of these.
[[nodiscard]] bool is_rocprof(std::string_view begin);

Result<Trace> read_rocprof(text::ByteFeed feed, const TraceLimits& limits = {});

}  // namespace headroom::formats
