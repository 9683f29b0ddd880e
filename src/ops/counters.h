// Counters of Nsight Compute beside the kernels of a trace: what each kernel reached of its limits,
// as its hardware counted it.
//
// ncu runs each kernel alone and several times, so it cannot be linked launch by launch: launches
// are averaged by kernel, and joined with the trace's kernels by name: the same, or, as ncu may
// print names without their arguments, the same function where only one of the trace has that name.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/ncu_csv.h"
#include "ops/answer.h"

namespace headroom::ops {

// `kernels`: the trace's, by kernel and operator.
KernelCounters counters_of(const formats::NcuProfile& profile,
                           const std::vector<KernelRow>& kernels);

}  // namespace headroom::ops
