// How many positions a model was made for, and what a longer sequence means where it runs.
//
// Where positions are looked up in a table, the model's family refuses a longer sequence itself
// (model/families/config.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// What the configuration states; nothing where it states none, the model is traced, or its task
// knows no such limit.
Result<std::optional<int64_t>> positions_of(const Scenario& scenario);

// In words, where --seq is beyond them; empty where nothing is to be said.
Result<std::string> beyond_positions(const Scenario& scenario);

}  // namespace headroom::fit
