// Figures that the user gives on the command line: "bandwidth=8TB/s,memory=64GiB". Any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "device/device.h"

namespace headroom::device {

// The source of such a figure.
inline constexpr std::string_view kGivenByUser = "given by the user";

// Replaces figures of `device`; catalogue.h has the list of keys. `memory` also replaces the usable
// memory, and `context` its whole interval. A key twice, an unknown key, or a value outside what a
// machine can have is an Error, after which `device` may be partly changed.
Result<void> apply_overrides(Device& device, std::string_view list);

}  // namespace headroom::device
