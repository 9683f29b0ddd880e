// Changes that touch single kernels by what they compute: elementwise chains fused, products in
// int8, another device.
//
// A kernel is scaled by its roofline: it keeps the share of its limit that it has, so its time
// changes as its floor does (operator_work.h counts FLOPs and bytes). What cannot be counted is
// scaled by its group's limit on another device, and left alone elsewhere. How good the kernels of
// the other side really are no trace says: that is not in the interval.
//
// Linear in the kernels; pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "ops/program.h"
#include "ops/run.h"
#include "timing/host_replay.h"

namespace headroom::ops {

struct Scenario {
  std::string change;  // "gemm_int8"
  std::string title;
  timing::ReplayChange made;
  std::vector<timing::ReplayChange> spanned;  // the same with less or more: the interval holds them
  double saved_ms = 0;                        // of the kernel time; may be negative
};

struct Scenarios {
  std::vector<Scenario> all;
  std::vector<std::string> notes;  // why one that was asked for is not there
};

// `device`: the limits of the one that ran, or null; `other`: to be asked about, or null.
Scenarios scenarios(const Recording& recording, const RecordedRun& run, const OperatorRules& rules,
                    const device::Device* device, const device::Device* other);

// Of a run on a CPU (host_program.h): linear layers in int8, by the rates of `device`; nothing
// where it has none, or the run no such layer.
std::optional<Scenario> host_int8_by_rates(const Recording& recording, const RecordedRun& run,
                                           const OperatorRules& rules,
                                           const device::Device& device);

}  // namespace headroom::ops
