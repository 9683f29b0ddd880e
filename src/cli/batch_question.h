// What `headroom batch` is asked, as its flags say it.
#pragma once

#include "base/result.h"
#include "batch/question.h"
#include "cli/flags.h"
#include "cli/machine.h"

namespace headroom::cli {

// Files that the flags name are read. REQUIRES: check_batch_flags() has passed.
Result<batch::BatchQuestion> batch_question(const Words& words, const Machines& machines);

}  // namespace headroom::cli
