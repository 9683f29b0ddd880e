// What attention's kernels that were written before Hopper give at most there. They have none of
// its wider instructions, and tables of attention there are of kernels that do.
//
// Source: of FlashAttention-2 arXiv 2307.08691, section 4: 335 of an H100 SXM's 989.4 TFLOPS, both
// passes together, at the most; arXiv 2407.08608, section 1: 35 % of an H100. PyTorch's flash
// backend is that kernel; its memory-efficient one, which is slower (2307.08691, section 4.1), is
// held to the same. cuDNN's has the instructions.
#pragma once

#include "device/device.h"
#include "timing/timing_model.h"

namespace headroom::timing {

// Makes `time` of a kernel of so many operations longer where it would be beyond that, and its
// interval with it. Of other GPUs, and of devices whose rate is not known, nothing is.
void hold_to_flash_ceiling(const device::Device& device, double flops, PredictedTime& time);

}  // namespace headroom::timing
