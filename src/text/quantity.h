// Quantities as people type them: "80GiB", "8TB/s", "989 TFLOPS".
//
// GiB is 2^30 and GB is 10^9; a number without a unit is refused, as nobody can know what it means.
// Pure functions, any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace headroom::text {

// Upper or lower case; spaces around the number and the unit are ignored. Negative numbers, NaN and
// what does not fit are Errors of kind usage; `name` (of the flag, say) begins their message.
Result<Bytes> parse_bytes(std::string_view text, std::string_view name);
Result<BytesPerSecond> parse_bytes_per_second(std::string_view text, std::string_view name);
Result<FlopsPerSecond> parse_flops_per_second(std::string_view text, std::string_view name);
Result<Watts> parse_watts(std::string_view text, std::string_view name);

}  // namespace headroom::text
