// Stretched lifetimes: what lives for most of a part, taken to live all through it.
//
// The gradients of a step with several micro-batches are made in the first backward and live to the
// optimizer. They are what ties the micro-batches together: without them each would be a part of
// its own, and all the same one. Where the load allows it, taking them to live throughout costs
// nothing, puts them at the bottom (components.h) and lets the rest fall into its repetitions,
// which are planned once and laid side by side.
//
// A plan for stretched lifetimes is a plan for the true ones. The opposite is not so: a bound or a
// proof for the stretched problem says nothing of the true one. O(n log n).
#pragma once

#include <cstdint>
#include <optional>

#include "memory/packing/sections.h"

namespace headroom::memory {

// The same items, the longest ones stretched while the load stays within `target`; nothing where
// none was. Items keep their places, sections do not: they are counted anew.
[[nodiscard]] std::optional<Sections> stretched(const Sections& sections, int64_t target);

}  // namespace headroom::memory
