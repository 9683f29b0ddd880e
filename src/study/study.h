// A study: every question that Headroom can answer, asked about one model on one machine.
//
// For `headroom study`, which shows it as one page. Each question adds its part here; one that has
// no answer for this model says why in `missing`, and the others stand. Thread-safe; costs the sum
// of its parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "batch/answer.h"
#include "fit/answer.h"
#include "fit/question.h"
#include "pack/answer.h"

namespace headroom::study {

struct MissingPart {
  std::string part;  // "batch"
  std::string why;
};

struct StudyAnswer {
  fit::FitAnswer fit;
  std::optional<pack::PackAnswer> pack;  // of the step, under PyTorch's default settings
  std::optional<batch::BatchAnswer> batch;
  std::vector<MissingPart> missing;
};

// `question` holds the model, the device and what else is settled; it stands for all parts. An
// Error where the first question, fit, has no answer.
Result<StudyAnswer> study(const fit::FitQuestion& question);

}  // namespace headroom::study
