// The passes of a stage whose two chunks lie mirrored ("V"): stage s of p has parts s and
// 2p - 1 - s, so that a micro-batch goes down the stages and comes back, and the last stage hands
// it to itself.
//   ZB-V         a shorter warm-up than with chunks that lie apart, every pass backward split; in
//                the middle one micro-batch goes forward and back through each chunk in turn.
//   DualPipeV    the middle pairs a pass forward of one chunk with a whole pass backward of the
//                other, which experts' messages may overlap; only the ends split passes.
//
// Invariants: as of pipeline.h, but that a part of the backward passes of DualPipeV is whole; no
// more than p micro-batches, each of both chunks, wait (ZB-V; DualPipeV: half of one more). Cost:
// linear.
// Sources: arXiv 2401.10241, section 6; 2412.19437, section 3.2.1, and
// github.com/deepseek-ai/DualPipe; ScheduleZBVZeroBubble and ScheduleDualPipeV of
// torch/distributed/pipelining/schedules.py (2.13), whose orders test_pipeline holds these against.
#pragma once

#include <cstdint>
#include <vector>

#include "step/pipeline.h"

namespace headroom::step {

// REQUIRES: is_mirrored(pipeline.schedule); of DualPipeV at least two micro-batches a stage.
[[nodiscard]] std::vector<PipelinePass> mirrored_passes(const Pipeline& pipeline,
                                                        int64_t micro_batches);

}  // namespace headroom::step
