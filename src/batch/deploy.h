// What to start: the commands of an engine for the server at B_opt, its replicas, or the server
// that was simulated for requests as they come; and what a million tokens cost in each way.
//
// Fills in its part of an answer whose B_opt is known. Pure; thread-safe.
#pragma once

#include "base/result.h"
#include "batch/answer.h"
#include "batch/predicted.h"
#include "text/json.h"

namespace headroom::batch {

// Whether the question's engine runs on its device, and can be told what is asked.
Result<void> check_engine(const BatchQuestion& question);

// `predicted`, `config` and `companion` or null. REQUIRES: the answer has a chosen batch, and what
// is set free.
Result<void> fill_commands(const Predicted* predicted, const text::JsonView* config,
                           const Companion* companion, BatchAnswer& answer);

// In front of the others: the server that was simulated, if it keeps the targets at some rate.
// `predicted` and `config` or null. REQUIRES: answer.open_load.
Result<void> add_open_load_command(const Predicted* predicted, const text::JsonView* config,
                                   BatchAnswer& answer);

// Where the speeds that are predicted for the question's engine are another's.
void note_engine_law(const Predicted& predicted, BatchAnswer& answer);

// Where prices were asked for. REQUIRES: the answer has a chosen batch.
void fill_prices(BatchAnswer& answer);

}  // namespace headroom::batch
