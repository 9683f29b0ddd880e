// axolotl's plugins that change what a step takes: Liger's kernels and cut cross entropy. Others
// are an Error, but for those that only watch.
#pragma once

#include "base/result.h"
#include "engines/setting_values.h"
#include "engines/training_setup.h"

namespace headroom::engines {

// Whether cut cross entropy is on.
Result<bool> read_axolotl_plugins(const SettingValues& in, TrainingSetup& setup);

}  // namespace headroom::engines
