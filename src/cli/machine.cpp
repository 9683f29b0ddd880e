#include "cli/machine.h"

#include "timing/calibration.h"

namespace headroom::cli {

Result<Machines> load_machines(const Words& words) {
  Machines machines;
  HEADROOM_ASSIGN(machines.catalogue, device::DeviceCatalogue::load());
  HEADROOM_ASSIGN(machines.timing, timing::TimingModel::load());
  if (!words.has(kCalibrationFlag.name)) return machines;
  HEADROOM_ASSIGN(machines.calibration,
                  timing::load_calibration(words.value(kCalibrationFlag.name)));
  HEADROOM_TRY(timing::adopt(*machines.calibration, machines.catalogue, machines.timing));
  return machines;
}

std::string Machines::device_for(const Words& words) const {
  if (words.has("device")) return words.value("device");
  return calibration ? calibration->device : "auto";
}

}  // namespace headroom::cli
