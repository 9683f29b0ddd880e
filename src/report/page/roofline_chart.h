// Operators in the plane of arithmetic intensity and achieved FLOP/s, under the roofs of a device.
//
// Both axes are logarithmic. Points whose work or time is nothing are not drawn. Pure; linear.
#pragma once

#include "ops/roofline.h"
#include "report/page/html.h"

namespace headroom::report {

inline constexpr size_t kRooflinePoints = 400;  // those that take most time are drawn

[[nodiscard]] Html roofline_chart(const ops::OperatorRoofline& roofline);

}  // namespace headroom::report
