// From the step's categories of memory to the components that an answer shows.
#pragma once

#include "fit/answer.h"
#include "memory/replay.h"

namespace headroom::fit {

[[nodiscard]] Component component_of(memory::Category category);
[[nodiscard]] ComponentBytes components_of(const memory::CategoryBytes& bytes);

}  // namespace headroom::fit
