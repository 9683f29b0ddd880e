// headroom.calibration/1: a Calibration as JSON, and back.
//
// The file holds its identity (what it was learned from, by which version, on which devices and
// with which versions of torch and transformers), the laws with their own errors, and the points.
// Laws are taken from the file as they stand; points are kept for people and for learning again.
// Members that are not known are left alone, since other verbs keep laws of their own in the same
// kind of file. Pure but for the file itself; thread-safe.
#pragma once

#include <string>

#include "base/result.h"
#include "fit/measured/calibration.h"
#include "text/json.h"

namespace headroom::fit {

[[nodiscard]] text::Json calibration_json(const Calibration& calibration);

// Bounds: a ratio in [1/8, 8], an offset within 2^50, 64 laws and 100,000 points.
Result<Calibration> read_calibration(const text::JsonView& root);
Result<Calibration> load_calibration(const std::string& path);
// The same for who asks for a correction: a file with neither laws of memory nor times of operators
// (timing/calibration.h) is an Error.
Result<Calibration> load_correction(const std::string& path);

}  // namespace headroom::fit
