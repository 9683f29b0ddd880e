// What to start: replicas of the server at B_opt on one GPU and what they would gain, the commands
// of an engine, its Kubernetes manifest, and what a million tokens cost in each way.
//
// Fills in its part of an answer whose B_opt is known. Pure; thread-safe.
#pragma once

#include <string>

#include "base/result.h"
#include "batch/answer.h"
#include "batch/predicted.h"

namespace headroom::batch {

// `predicted` or null. REQUIRES, as of all here: the answer has a chosen batch.
Result<void> fill_replicas(const Predicted* predicted, BatchAnswer& answer);

void fill_commands(const Predicted* predicted, BatchAnswer& answer);

// In front of the others: the server that was simulated. REQUIRES: answer.open_load.
void add_open_load_command(BatchAnswer& answer);

// Where prices were asked for.
void fill_prices(BatchAnswer& answer);

// "kubernetes=FILE" or "shell=FILE".
struct EmitRequest {
  std::string kind;
  std::string file;
};
Result<EmitRequest> parse_emit(std::string_view words);
// What goes into the file. An Error where the answer has nothing to start.
Result<std::string> emitted(const BatchAnswer& answer, const EmitRequest& request);

}  // namespace headroom::batch
