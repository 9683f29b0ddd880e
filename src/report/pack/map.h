// The address map of a pack answer: requests, held memory and plan in the form that a page draws.
//
// Pure; O(n log n).
#pragma once

#include "pack/answer.h"
#include "report/pack/address_map.h"

namespace headroom::report {

[[nodiscard]] AddressMap address_map_of(const pack::PackAnswer& answer);

}  // namespace headroom::report
