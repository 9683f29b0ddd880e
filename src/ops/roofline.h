// The roofline of operators: what each took, beside the least that the device's limits allow.
//
// The floor of an operator is the longer of its FLOPs at the peak rate of its type and its bytes at
// the peak bandwidth (operator_work.h counts both). What its kernels take above that, times how
// often it runs, is what better kernels could win at most: the rows come in that order, so that
// work goes where it pays. An operator whose data stays in caches can be below its floor; it counts
// as nothing to win.
//
// Of a run on a CPU, operators' own times there are held against a processor's limits, where those
// are given or were measured; never against a GPU's.
//
// Linear in the work; each operator with its shapes is counted once. Pure, thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/provenance.h"
#include "device/device.h"
#include "ops/run.h"

namespace headroom::ops {

struct RooflineRow {
  std::string name;
  std::string shapes;
  std::string group;
  std::string rate;  // whose peak holds: "bf16"
  double count = 0;  // a step
  // Of one call:
  double flops = 0;
  double bytes = 0;
  // Of a step:
  double kernel_ms = 0;
  double floor_ms = 0;
  double above_ms = 0;
  bool is_compute_bound = false;  // its floor is of the arithmetic
  double achieved_pct = 0;        // floor_ms of kernel_ms
  double flops_per_second = 0;
  double bytes_per_second = 0;
};

struct OperatorRoofline {
  std::string device;
  Provenance provenance = Provenance::datasheet;  // of its limits: extrapolated where one is
  std::string source;                             // of the bandwidth
  double bytes_per_second = 0;
  std::vector<std::pair<std::string, double>> flops_per_second;  // by rate
  // Limits that the user gave: "bandwidth", or a rate. The others' provenance, where there are
  // some.
  std::vector<std::string> given;
  std::optional<Provenance> not_given;
  double covered_pct = 0;  // of the kernel time: operators whose work could be counted
  double kernel_ms = 0;    // of those, a step; of it:
  double floor_ms = 0;
  double above_ms = 0;
  double compute_bound_pct = 0;   // of kernel_ms: by operators whose floor is of the arithmetic
  std::vector<RooflineRow> rows;  // most to win first
};

// Nothing where the device's bandwidth is not known, no operator could be counted, or the run was
// none of such a device.
std::optional<OperatorRoofline> roofline(const RecordedRun& run, const OperatorRules& rules,
                                         const device::Device& device);

}  // namespace headroom::ops
