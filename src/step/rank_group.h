// RankGroup: who takes part in a collective, as far as that decides over which links it goes.
#pragma once

#include <cstdint>

namespace headroom::step {

// So many ranks, each so many devices from the next; a count of 0: not said.
struct RankGroup {
  int32_t count = 0;
  int32_t apart = 1;
  bool operator==(const RankGroup&) const = default;
};

}  // namespace headroom::step
