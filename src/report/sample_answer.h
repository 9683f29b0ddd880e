// A hand-made answer for tests of this room. Its figures keep the invariants of fit/answer.h and
// are otherwise made up; it is never linked into the product.
#pragma once

#include "fit/answer.h"

namespace headroom::report {

// A step of a 7B model with every field filled: `layers` layers make 40 timeline points each.
[[nodiscard]] fit::FitAnswer sample_answer(int layers = 32);

// The same with every string from outside replaced by `text`.
[[nodiscard]] fit::FitAnswer sample_answer_with(const std::string& text);

[[nodiscard]] fit::AgainstAnswer sample_against();

}  // namespace headroom::report
