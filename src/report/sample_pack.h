// A hand-made pack answer for tests of this room: blocks that come and go in segments of 20 MiB,
// and a plan that stacks them. Its figures keep the invariants of pack/answer.h and are otherwise
// made up; it is never linked into the product.
#pragma once

#include <string>

#include "pack/answer.h"

namespace headroom::report {

// With `words` wherever something comes from outside.
[[nodiscard]] pack::PackAnswer sample_pack(const std::string& words, size_t blocks);

}  // namespace headroom::report
