#include "study/study.h"

#include "fit/fit.h"

namespace headroom::study {

Result<StudyAnswer> study(const fit::FitQuestion& question) {
  StudyAnswer answer;
  HEADROOM_ASSIGN(answer.fit, fit::answer(question));
  return answer;
}

}  // namespace headroom::study
