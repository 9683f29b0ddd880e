// `headroom batch --watch`: reads a server's metrics again and again, and says when its batch limit
// should change.
#pragma once

#include "base/result.h"
#include "batch/question.h"
#include "cli/console.h"
#include "cli/flags.h"
#include "text/json.h"
#include "timing/timing_model.h"

namespace headroom::cli {

// Until --for is over or a signal ends it; the exit code, or why it could not begin.
Result<int> watch_server(const Words& words, const Console& console,
                         const batch::BatchQuestion& question, const text::JsonView* config,
                         const timing::TimingModel& model);

}  // namespace headroom::cli
