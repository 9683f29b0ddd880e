// The devices and timing laws that a verb works with: ours, the user's, and --calibration's.
//
// For verbs that take kCalibrationFlag. Milliseconds; thread-safe.
#pragma once

#include "base/result.h"
#include "cli/flags.h"
#include "device/catalogue.h"
#include "timing/timing_model.h"

namespace headroom::cli {

inline constexpr Flag kCalibrationFlag{
    "calibration", "FILE", "what `headroom bench device` measured: its device, and times by it"};

struct Machines {
  device::DeviceCatalogue catalogue;
  timing::TimingModel timing;
};

// An Error about one of the user's files.
Result<Machines> load_machines(const Words& words);

}  // namespace headroom::cli
