#include "fit/fit.h"

namespace headroom::fit {

// The computations arrive with the step model; until then the answer is that there is none.
Result<FitAnswer> answer(const FitQuestion& question) {
  return Error{ErrorCode::unavailable, "this build cannot answer yet", question.model,
               "the step model is not built in"};
}

Result<AgainstAnswer> answer_against(const AgainstQuestion& question) {
  return Error{ErrorCode::unavailable, "this build cannot answer yet", question.file,
               "the step model is not built in"};
}

}  // namespace headroom::fit
