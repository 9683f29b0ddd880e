// The GPUs that are in this machine, asked of NVIDIA's management library.
//
// The library is loaded at run time (dlopen), so that one build works everywhere; no CUDA context
// is made and no device memory is touched. Takes 10 to 100 ms where there is a driver, microseconds
// where there is none. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace headroom::device {

struct DetectedGpu {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  Bytes memory;      // total, as nvidia-smi shows it
  Bytes used;        // by all processes now, the driver's own part included
};

// In the driver's order, which CUDA_VISIBLE_DEVICES does not change. No driver, or a driver without
// a GPU, is an Error of kind unavailable.
Result<std::vector<DetectedGpu>> detect_gpus();

// What find() asks; tests pass their own.
using Detector = std::function<Result<std::vector<DetectedGpu>>()>;

}  // namespace headroom::device
