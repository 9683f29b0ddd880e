// What of an operator's input lies on its side, its innermost dimension not the one that the
// operator goes along: it is copied to lie right, element by element a stride apart, within the
// operator or, of a copy, as all that it does. On a processor that takes several times what moving
// it takes.
//
// Pure; linear in the dimensions, of which there are few.
#pragma once

#include <cstdint>

namespace headroom::op {

class Tensor;

struct Permuted {
  int64_t bytes = 0;  // 0: nothing
  int64_t run = 0;    // elements that the copy writes side by side before the next run begins
  bool operator==(const Permuted&) const = default;
};

// A copy of all of `from` into the layout of `to`, which has its sizes.
[[nodiscard]] Permuted permuted_into(const Tensor& from, const Tensor& to);
// The same, into a layout with the last dimension innermost.
[[nodiscard]] Permuted permuted_into_rows(const Tensor& from);

}  // namespace headroom::op
