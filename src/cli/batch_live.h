// `headroom batch --url`: the points of the question, measured on a running server.
#pragma once

#include "batch/answer.h"
#include "batch/question.h"
#include "cli/console.h"
#include "cli/flags.h"

namespace headroom::cli {

struct LiveOutcome {
  batch::LiveRecord record;
  std::vector<std::string> notes;
  std::optional<Error> error;  // of the server, after something was measured
};

// Drives the server and puts what it measured into `question`: points, lengths, the model's name.
// An Error where nothing could be measured.
Result<LiveOutcome> measure_server(const Words& words, const Console& console,
                                   batch::BatchQuestion& question);

// Of the variable HEADROOM_API_KEY; empty where it is not there. An Error where it cannot be sent.
Result<std::string> api_key();

// A server at the question's rates (--url with --rate).
Result<batch::LoadRecord> measure_rates(const Words& words, const Console& console,
                                        const batch::BatchQuestion& question);

}  // namespace headroom::cli
