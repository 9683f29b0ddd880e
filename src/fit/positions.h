// How many positions a model has, and what a longer sequence means for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "fit/scenario.h"

namespace headroom::fit {

// The positions that the configuration states; nothing where it states none or the model is traced.
Result<std::optional<int64_t>> positions_of(const Scenario& scenario);

// An error where --seq is beyond a table of positions: PyTorch would stop at the first lookup.
// Where positions are computed (rotary embeddings, relative biases) a longer sequence runs, and
// this says so in words; empty where nothing is to be said.
Result<std::string> check_positions(const Scenario& scenario);

}  // namespace headroom::fit
