// A trace of the capture of a graph, joined with the trace of a run that launches it.
//
// In the run all kernels of a graph belong to one call, and no operator is known; while it was
// captured the same kernels were launched one by one, by operators with shapes, and did not run. A
// trace may hold several captures (of several batches, of pieces of a model): each graph is joined
// with the one that it matches best. Kernels of a graph come in the order of their capture, so both
// sequences are walked side by side. Where the capture knows the names of its kernels (ROCm says
// them) most of them must agree, and what one side alone has is passed over; where it does not
// (CUDA) the whole must be of the same length, kernel for kernel and copy for copy. Captures that
// match as well give operators where they have the same, and shapes where those are the same too.
//
// The operators of the capture come to the trace as events of a kind of their own, before its
// begin, so that whatever asks for a kernel's operator finds one (Work::own_operation). Linear but
// for a window that names are looked for in; pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "formats/trace.h"

namespace headroom::ops {

struct CaptureJoin {
  int64_t graph_kernels = 0;       // of the run
  int64_t joined = 0;              // of those, with an operator now
  int64_t captured = 0;            // launches of the capture that did not run
  bool has_names = false;          // of the capture's kernels
  bool has_unsure_shapes = false;  // captures of several shapes match as well
};

CaptureJoin join_capture(formats::Trace& trace, const formats::Trace& capture);

}  // namespace headroom::ops
