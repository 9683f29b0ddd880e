// The devices that Headroom knows, and finding one by what people call it.
//
// load() reads the built-in data/devices.json (it is inside the program), then $HEADROOM_DEVICES,
// then $XDG_CONFIG_HOME/headroom/devices.json (~/.config where that is not set): a later file adds
// devices, and changes figures of those it names again. About 1 ms. A catalogue is not changed
// after it was loaded, so any number of threads may use one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/detect.h"
#include "device/device.h"
#include "device/device_file.h"

namespace headroom::device {

struct FoundDevice {
  Device device;
  std::string assumption;  // what was taken for granted, for people; mostly empty
};

class DeviceCatalogue {
 public:
  // With the environment as it is. An Error is about one of the user's files.
  static Result<DeviceCatalogue> load();
  // The built-in devices alone.
  static DeviceCatalogue built_in();

  // Adds the devices of a headroom.devices/1 text; `file` is used in errors. A bad text changes
  // nothing.
  Result<void> merge(std::string_view json, const std::string& file);
  Result<void> merge(const text::JsonView& root);

  // In the order of the files.
  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }

  // The device that `spec` means, which is NAME or NAME,KEY=VALUE,...:
  //   NAME  a name ("a100-sxm-80gb"), a product ("NVIDIA A100-SXM4-80GB") or a part of one that
  //   fits
  //         a single device ("h200"); "cpu"; or "auto", the first GPU of this machine
  //   KEY   memory, usable_memory, bandwidth, l2, link, pcie, context; fp32, tf32, fp16, bf16, fp8,
  //         int8, fp4; power, a limit to it. "h100-sxm-80gb,bandwidth=8TB/s"
  // A name that fits several devices is an Error with the candidates.
  [[nodiscard]] Result<Device> find(std::string_view spec,
                                    const Detector& detector = detect_gpus) const;

  // For the words that people write beside measurements ("A100-80GB", "2x RTX3090", "H100"): where
  // several devices fit, the first in the order of the catalogue is taken, in which the form that
  // is most often measured comes first, and `assumption` says so.
  [[nodiscard]] Result<FoundDevice> find_for_measurement(std::string_view text) const;

 private:
  [[nodiscard]] Result<Device> resolve(std::string_view name, const Detector& detector) const;
  [[nodiscard]] Result<Device> find_auto(const Detector& detector) const;
  [[nodiscard]] Error unknown(std::string_view name) const;

  std::vector<Device> devices_;
  std::vector<FigureSource> sources_;  // of all files read so far; a user's file may refer to ours
};

}  // namespace headroom::device
