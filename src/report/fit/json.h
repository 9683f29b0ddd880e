// A fit answer as JSON: schema "headroom.fit/1", the keys that other programs rely on.
//
// Pure, thread-safe, linear in the answer. New keys may come beside the old ones; removing or
// changing one raises the number in the schema.
#pragma once

#include "fit/answer.h"
#include "text/json.h"

namespace headroom::report {

[[nodiscard]] text::Json fit_json(const fit::FitAnswer& answer);
[[nodiscard]] text::Json against_json(const fit::AgainstAnswer& answer);

// Parts that other answers of `fit` have too. Low, expected and high; the unit stands in the key
// that holds this.
[[nodiscard]] text::Json interval_json(const fit::Interval& interval);
[[nodiscard]] text::Json estimate_json(const fit::Estimate& estimate);
[[nodiscard]] text::Json time_json(const fit::StepTime& time);
// The first, and those besides it; no keys where there are none.
void add_emitted(const std::vector<fit::Emitted>& emitted, text::Json& to);
[[nodiscard]] text::Json largest_json(const std::optional<fit::Largest>& largest);
[[nodiscard]] text::Json breakdown_json(const fit::ComponentBytes& bytes);
[[nodiscard]] text::Json timeline_json(const fit::Timeline& timeline);
[[nodiscard]] text::Json host_json(const fit::HostFigures& host);
[[nodiscard]] text::Json device_json(const fit::DeviceMemory& device);

}  // namespace headroom::report
