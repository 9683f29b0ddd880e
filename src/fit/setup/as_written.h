// What a file that was written says, predicted: an engine's file cannot say every setting, so what
// fits as it was asked may not fit as it was written.
#pragma once

#include "fit/answer.h"
#include "fit/question.h"

namespace headroom::fit {

// Reads the file of `emitted` as --from does and predicts what it says, where that is not `asked`,
// which it was written for: Emitted::as_written. `beside` is what would be said beside --from; what
// neither says stands as it does where nobody says anything. What cannot be predicted so has a
// note. Takes as long as fit::answer() without its searches.
void predict_written(const FitQuestion& asked, const FitQuestion& beside, Emitted& emitted);

}  // namespace headroom::fit
