// Columns of integers, small enough to stand in a page by the hundred thousand: each as its
// difference to the one before, in bytes of seven bits, in base64. assets/map.js reads them.
//
// A difference is written as twice its size, plus one where it is negative ("zigzag"), the lowest
// seven bits first; the highest bit of a byte says that another follows. {5, 3, 300} is "CgPSBA==".
// Pure; about a byte and a third a small number.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace headroom::report {

[[nodiscard]] std::string column_of(std::span<const int64_t> values);

}  // namespace headroom::report
