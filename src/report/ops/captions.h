// Lines beneath the tables of an ops answer: why the device idles, and what the horizon's intervals
// are.
//
// Pure; thread-safe.
#pragma once

#include <string>

#include "ops/answer.h"

namespace headroom::report {

// "idle: 80.0 % waiting for the host, 20.0 % launched and not begun"; "" where no device idles.
[[nodiscard]] std::string idle_words(const ops::OpsAnswer& answer);
// "between: ...". REQUIRES: there is a horizon.
[[nodiscard]] std::string between_words(const ops::OpsAnswer& answer);

}  // namespace headroom::report
