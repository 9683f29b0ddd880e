// From the words of a command line to a question about a model: what fit and study share.
#pragma once

#include <vector>

#include "cli/console.h"
#include "cli/flags.h"
#include "fit/question.h"

namespace headroom::cli {

// The flags of fit::question_flags(), and what `more` adds.
[[nodiscard]] std::vector<Flag> question_and(std::vector<Flag> more);

// The question that the words put. Without --device it is the GPU of this machine, and where there
// is none a stated one, said on stderr.
Result<fit::FitQuestion> question_of(const Words& words, const Console& console);

}  // namespace headroom::cli
