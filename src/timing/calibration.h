// What `headroom bench device` measured on one machine, as a file: headroom.calibration/1.
//
//   "machine"  what was measured, with which PyTorch, at which load
//   "device"   the name under which it goes, as in --device
//   "devices"  its figures, as a headroom.devices/1 file has them; absent where the catalogue's
//   hold "timing"   its laws with their errors, as a headroom.timing/1 file has them "points" what
//   was measured, which the laws are used with (measured_point.h)
//
// Other members are left alone: `fit` keeps corrections of its own in the same kind of file. Pure
// but for the file itself; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "device/catalogue.h"
#include "text/json.h"
#include "timing/law_file.h"
#include "timing/measured_point.h"
#include "timing/timing_model.h"

namespace headroom::timing {

// As the probe found it.
struct Machine {
  std::string product;  // "AMD EPYC 7B13"
  std::string kind;     // "cpu" or "cuda"
  Bytes memory;
  Bytes cache;        // the last level
  int64_t units = 1;  // threads, or multiprocessors
  std::string torch;
  std::string python;
  double load = 0;  // of the system when measuring began; on a quiet machine below 0.5
};

struct Calibration {
  Machine machine;
  std::string device;
  text::Json devices;  // null: the catalogue knows it
  LawFile laws;
  std::vector<MeasuredPoint> points;
};

[[nodiscard]] text::Json machine_json(const Machine& machine);
Result<Machine> read_machine(const text::JsonView& view);

[[nodiscard]] text::Json calibration_json(const Calibration& calibration);
Result<Calibration> read_calibration(const text::JsonView& root);
Result<Calibration> load_calibration(const std::string& path);

// Puts the device into the catalogue, its laws and points into the model. On an Error both may be
// partly changed.
Result<void> adopt(const Calibration& calibration, device::DeviceCatalogue& catalogue,
                   TimingModel& model);

}  // namespace headroom::timing
