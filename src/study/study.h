// A study: every question that Headroom can answer, asked about one model on one machine.
//
// For `headroom study`, which shows it as one page. Each question adds its part here. Thread-safe;
// costs the sum of its parts.
#pragma once

#include "base/result.h"
#include "fit/answer.h"
#include "fit/question.h"

namespace headroom::study {

struct StudyAnswer {
  fit::FitAnswer fit;
};

// `question` holds the model, the device and what else is settled; it stands for all parts.
Result<StudyAnswer> study(const fit::FitQuestion& question);

}  // namespace headroom::study
