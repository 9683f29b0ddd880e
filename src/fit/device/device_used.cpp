#include "fit/device/device_used.h"

#include <algorithm>

namespace headroom::fit {

namespace {

// What nvidia-smi showed beyond context and replay, in shares of what comes and goes within a step:
// five quarters of the least, the median, five quarters of the largest. Derived from all 63 rows
// of one GPU, and 86 of several: their own coverage is in sample; what a model held aside gets is
// in docs/measurements/2026-11-21-device-used (analyse.py), of several in 2026-11-27-fsdp1-late.
struct BeyondReplay {
  double low, expected, high;
};
constexpr BeyondReplay kBeyondReplay{-0.05, 0.04, 0.17};
constexpr BeyondReplay kBeyondReplayOfFusedLoss{0, 0.23, 0.44};
constexpr BeyondReplay kBeyondReplayOfRanks{0, 0.12, 0.61};
constexpr BeyondReplay kBeyondReplayOfRanksAndFusedLoss{-0.02, 0.09, 0.90};

// NCCL's first communicator: 544 MB in a group of two, 688 MB in a larger one (NVIDIA/nccl issue
// 964, four A100s with NVLink); 1.6 GB (issue 864). Each further one: about 0.5 GB (Fujii et al.,
// arXiv 2411.06465), and 0.65 GiB of RCCL's (LUMI-AI-Guide, issue 111). Nobody gives a least.
constexpr Interval kCommunicatorOfTwo{Bytes(0), Bytes(544'000'000), Bytes(1'600'000'000)};
constexpr Interval kCommunicator{Bytes(0), Bytes(688'000'000), Bytes(1'600'000'000)};
constexpr Interval kFurtherCommunicator{Bytes(0), Bytes(500'000'000), Bytes(698'000'000)};

void add(const Interval& what, int64_t times, Interval& to) {
  to.low += Bytes(times * what.low.count);
  to.expected += Bytes(times * what.expected.count);
  to.high += Bytes(times * what.high.count);
}

const BeyondReplay& beyond_replay(const AllocatorFigures& figures) {
  if (!figures.gathers) return figures.fused_loss ? kBeyondReplayOfFusedLoss : kBeyondReplay;
  return figures.fused_loss ? kBeyondReplayOfRanksAndFusedLoss : kBeyondReplayOfRanks;
}

Bytes share_of(Bytes bytes, double share) {
  return Bytes(static_cast<int64_t>(share * static_cast<double>(bytes.count)));
}

}  // namespace

Communicators communicators_among(std::initializer_list<int64_t> groups) {
  Communicators communicators;
  for (const int64_t ranks : groups) {
    if (ranks < 2) continue;
    if (communicators.ranks == 1) {
      communicators.ranks = ranks;
    } else {
      ++communicators.others;
    }
  }
  return communicators;
}

Interval outside_allocator(const device::Device& device, const Communicators& communicators) {
  const device::BytesInterval& context = device.context.value;
  Interval outside{context.low, context.expected, context.high};
  if (communicators.ranks == 1) return outside;
  add(communicators.ranks == 2 ? kCommunicatorOfTwo : kCommunicator, 1, outside);
  add(kFurtherCommunicator, communicators.others, outside);
  return outside;
}

Interval device_used(const device::Device& device, const AllocatorFigures& figures, Bytes offered) {
  const Interval context = outside_allocator(device, figures.communicators);
  const Bytes reserved = figures.peak_reserved;
  const Bytes comes_and_goes = std::max(Bytes(0), reserved - figures.between_steps);
  const BeyondReplay& beyond = beyond_replay(figures);
  Interval used;
  used.expected = reserved + context.expected + share_of(comes_and_goes, beyond.expected);
  used.high = reserved + context.high + share_of(comes_and_goes, beyond.high);
  const bool may_flush = used.high > offered;
  const Bytes held_at_least = reserved + share_of(comes_and_goes, beyond.low);
  used.low = std::max(figures.peak_allocated, may_flush ? Bytes(0) : held_at_least) + context.low;
  return used;
}

}  // namespace headroom::fit
