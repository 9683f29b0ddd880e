// The answer of `bench device` for people and for programs. Pure; thread-safe.
#pragma once

#include <string>

#include "bench/device.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// `file`: where the calibration was written; empty where it was not. `agreement`: with an earlier
// run, or null.
[[nodiscard]] std::string device_bench_text(const bench::DeviceAnswer& answer,
                                            const std::string& file,
                                            const bench::Agreement* agreement,
                                            const text::Terminal& terminal);
[[nodiscard]] text::Json device_bench_json(const bench::DeviceAnswer& answer,
                                           const std::string& file,
                                           const bench::Agreement* agreement);

}  // namespace headroom::report
