// The arithmetic of figures that a message has rounded.
#pragma once

#include "base/units.h"

namespace headroom::pack {

// Half of the last digit that PyTorch's format_size() writes.
[[nodiscard]] inline Bytes rounding_of(Bytes figure) {
  for (const int64_t unit : {kGiB, kMiB, kKiB}) {
    if (figure.count > unit) return Bytes(unit / 200 + 1);
  }
  return Bytes(0);
}

[[nodiscard]] inline double pct_of(Bytes part, Bytes whole) {
  if (whole.count <= 0) return 0;
  return 100.0 * static_cast<double>(part.count) / static_cast<double>(whole.count);
}

}  // namespace headroom::pack
