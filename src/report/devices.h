// The devices that Headroom knows, for people and for programs.
//
// Pure, thread-safe. The JSON is a headroom.devices/1 file: what is printed can be kept, changed
// and given back by $HEADROOM_DEVICES.
#pragma once

#include <span>
#include <string>

#include "device/device.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// One line a device.
[[nodiscard]] std::string devices_text(std::span<const device::Device> devices,
                                       const text::Terminal& terminal);
// Every figure of one device, with where it comes from.
[[nodiscard]] std::string device_text(const device::Device& device, const text::Terminal& terminal);
[[nodiscard]] text::Json devices_json(std::span<const device::Device> devices);

}  // namespace headroom::report
