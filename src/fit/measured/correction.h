// A Prediction with the laws of a calibration put to it.
//
// Each figure has its own law; reserved memory and what nvidia-smi shows, which hold what is
// allocated, move along with it where they have none. What the figures mean is kept: reserved is at
// least allocated, and what nvidia-smi shows at least allocated and the context.
// Pure, thread-safe.
#pragma once

#include "fit/measured/calibration.h"
#include "fit/prediction.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// The law that the scenario's calibration has for this metric on its device, or nullptr.
[[nodiscard]] const CalibrationLaw* law_of(const Scenario& scenario, Metric metric);

// Before the parts of `p` that are differences of its figures are filled in. What a law adds to the
// allocated peak is put down as Component::other, since no law says which part it belongs to; what
// it takes away comes off that and then off the largest part.
void correct(Prediction& p, const Scenario& scenario);

// Where the scenario's figure of this metric comes from.
[[nodiscard]] Provenance provenance_of(const Scenario& scenario, Metric metric);

// What the scenario's calibration did to the figures, for people: a sentence a law that was put to
// them, and what it does not say of this device. `measured_device` is the one whose operators it
// has the times of; empty: of none.
[[nodiscard]] std::vector<std::string> calibration_warnings(const Scenario& scenario,
                                                            std::string_view measured_device);

}  // namespace headroom::fit
