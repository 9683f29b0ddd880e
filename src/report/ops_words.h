// Words and names that the forms of an ops answer share.
#pragma once

#include <string>
#include <string_view>

#include "ops/answer.h"

namespace headroom::report {

// Four figures, whatever the size.
[[nodiscard]] std::string milliseconds(double ms);
// With one decimal.
[[nodiscard]] std::string percent_words(double share);
[[nodiscard]] std::string_view bound_name(ops::Bound bound);
// "the host: the device is idle 83.8 % of the time, most of it ...", the answer's first sentence.
[[nodiscard]] std::string bound_words(const ops::OpsAnswer& answer);

}  // namespace headroom::report
