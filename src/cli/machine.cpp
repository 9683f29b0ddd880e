#include "cli/machine.h"

#include "timing/calibration.h"

namespace headroom::cli {

Result<Machines> load_machines(const Words& words, const Console& console) {
  Machines machines;
  HEADROOM_ASSIGN(machines.catalogue, device::DeviceCatalogue::load());
  HEADROOM_ASSIGN(machines.timing, timing::TimingModel::load());
  if (!words.has(kCalibrationFlag.name)) return machines;
  HEADROOM_ASSIGN(machines.calibration,
                  timing::load_calibration(words.value(kCalibrationFlag.name)));
  HEADROOM_TRY(timing::adopt(*machines.calibration, machines.catalogue, machines.timing));
  if (!words.has("device")) return machines;
  const auto asked = machines.catalogue.find(words.value("device"));
  const std::string& measured = machines.calibration->device;
  if (asked && asked->name != measured) {
    console.note("the calibration is of " + measured + ": times on " + asked->name +
                 " do not follow from it");
  }
  return machines;
}

std::string Machines::device_for(const Words& words) const {
  if (words.has("device")) return words.value("device");
  return calibration ? calibration->device : "auto";
}

Result<op::DType> dtype_of(const Words& words, op::DType otherwise) {
  if (!words.has("dtype")) return otherwise;
  const std::string name = words.value("dtype");
  const std::optional<op::DType> dtype = op::parse_dtype(name);
  if (dtype == op::DType::bf16 || dtype == op::DType::f16 || dtype == op::DType::f32) return *dtype;
  return Error{ErrorCode::usage,
               "'" + name.substr(0, 80) + "' is not a type that --dtype takes",
               {},
               "bfloat16, float16 or float32"};
}

}  // namespace headroom::cli
