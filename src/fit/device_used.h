// What nvidia-smi shows beyond torch's own figures, as an interval.
//
// expected = reserved by the allocator + the context; the interval adds what is not known: how much
// of CUDA's kernels are loaded, what other libraries take, and how a real run's order of requests
// fragments differently from the modelled one.
#pragma once

#include "device/device.h"
#include "fit/answer.h"

namespace headroom::fit {

// Context, loaded kernels and library handles of one training process without communication.
[[nodiscard]] Interval outside_allocator(const device::Device& device);

[[nodiscard]] Interval device_used(const device::Device& device, Bytes allocated, Bytes reserved);

}  // namespace headroom::fit
