// What nvidia-smi shows beyond torch's own figures, as a 90 % interval.
//
// A device shows the context, what libraries load into it, and what the allocator holds. That is
// not what the replay of one step holds, since a real run's sizes and their order vary (a
// tokenizer's padding token, experts' shares): on A100s it was up to a fifth more of what comes and
// goes within a step, and with a fused loss over whole logits up to two fifths. Where that is more
// than the device has, the allocator empties its cache, and any amount between need and device may
// be left.
//
// Among several ranks it was up to half as much again, with a fused loss up to seven tenths, beyond
// what the replay has of blocks that come back late. Measured of FSDP's first version alone; its
// second and ZeRO's third stage, which gather on streams of their own, too, take the same shares,
// and FSDP's second needs them less.
//
// The shares come from docs/measurements/2026-11-21-device-used, whose script says how true
// intervals are that were derived without the model that they are held against.
#pragma once

#include <initializer_list>

#include "device/device.h"
#include "fit/answer.h"

namespace headroom::fit {

// NCCL's communicators that a process is in.
struct Communicators {
  int64_t ranks = 1;   // in the first; 1: there is none
  int64_t others = 0;  // besides
};

// Of groups of so many ranks, the one that is made first in front; one rank alone needs none.
[[nodiscard]] Communicators communicators_among(std::initializer_list<int64_t> groups);

// Of one training process, as its allocator was replayed.
struct AllocatorFigures {
  Bytes peak_allocated;
  Bytes peak_reserved;
  Bytes between_steps;      // allocated
  bool fused_loss = false;  // over whole logits, in place
  Communicators communicators{};
  bool gathers = false;  // parameters come and go, on streams of their own
};

// Context, loaded kernels and library handles of one training process, and, of one among several
// ranks, its communicators.
[[nodiscard]] Interval outside_allocator(const device::Device& device,
                                         const Communicators& communicators);

// `offered` is what processes can use of the device. REQUIRES: reserved is at least allocated.
[[nodiscard]] Interval device_used(const device::Device& device, const AllocatorFigures& figures,
                                   Bytes offered);

}  // namespace headroom::fit
