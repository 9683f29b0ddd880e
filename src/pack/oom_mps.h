// The same question of an Apple GPU (PyTorch's MPS backend), whose message names other holders.
//
// The memory is the machine's own, so what mostly runs out is a limit: the high watermark, a ratio
// of what Metal recommends (PYTORCH_MPS_HIGH_WATERMARK_RATIO, 1.7 by default); or Metal refuses
// below it, which the figures show. PyTorch has given back what it cached before it fails, so that
// each heap which it still holds has a tensor in it. Pure.
// Source: PyTorch, aten/src/ATen/mps/MPSAllocator.mm.
#pragma once

#include "pack/oom.h"
#include "pack/oom_figures.h"

namespace headroom::pack {

// Fills all but `message`. REQUIRES: the message is of MPS and not cut.
void judge_mps(OomCase& one);

}  // namespace headroom::pack
