#include "fit/device/device_used.h"

#include <gtest/gtest.h>

namespace headroom::fit {
namespace {

constexpr Bytes kOffered{80 * kGiB};

device::Device some_device() {
  device::Device device;
  device.context.value = {Bytes(400 * kMiB), Bytes(500 * kMiB), Bytes(1000 * kMiB)};
  return device;
}

TEST(DeviceUsed, NothingThatComesAndGoesLeavesTheContext) {
  const AllocatorFigures idle{Bytes(kGiB), Bytes(kGiB), Bytes(kGiB)};
  const Interval used = device_used(some_device(), idle, kOffered);
  EXPECT_EQ(used.low, Bytes(kGiB + 400 * kMiB));
  EXPECT_EQ(used.expected, Bytes(kGiB + 500 * kMiB));
  EXPECT_EQ(used.high, Bytes(kGiB + 1000 * kMiB));
}

TEST(DeviceUsed, WhatComesAndGoesMayBeMoreInARealRun) {
  const AllocatorFigures step{Bytes(18 * kGiB), Bytes(20 * kGiB), Bytes(10 * kGiB)};
  const Interval used = device_used(some_device(), step, kOffered);
  EXPECT_LT(used.low, Bytes(20 * kGiB + 400 * kMiB));
  EXPECT_GE(used.low, step.peak_allocated + Bytes(400 * kMiB));
  EXPECT_GT(used.expected, Bytes(20 * kGiB + 500 * kMiB));
  EXPECT_GT(used.high, used.expected);
}

TEST(DeviceUsed, AFusedLossLeavesMoreUnused) {
  AllocatorFigures step{Bytes(18 * kGiB), Bytes(20 * kGiB), Bytes(10 * kGiB)};
  const Interval plain = device_used(some_device(), step, kOffered);
  step.fused_loss = true;
  const Interval fused = device_used(some_device(), step, kOffered);
  EXPECT_GT(fused.low, plain.low);
  EXPECT_GT(fused.expected, plain.expected);
  EXPECT_GT(fused.high, plain.high);
}

// Where the cache may have to be emptied, nothing says how much of it is left.
TEST(DeviceUsed, NearTheDevicesEndOnlyTheNeedIsCertain) {
  const AllocatorFigures step{Bytes(60 * kGiB), Bytes(78 * kGiB), Bytes(40 * kGiB)};
  const Interval used = device_used(some_device(), step, kOffered);
  EXPECT_EQ(used.low, Bytes(60 * kGiB + 400 * kMiB));
  EXPECT_GT(used.high, kOffered);
}

// One alone needs no group; each one behind the first takes less than it.
TEST(DeviceUsed, EachCommunicatorTakesItsOwn) {
  const auto outside = [](std::initializer_list<int64_t> groups) {
    return outside_allocator(some_device(), communicators_among(groups));
  };
  EXPECT_EQ(outside({1, 1}).expected, Bytes(500 * kMiB));
  const Interval one = outside({1, 8});
  const Interval three = outside({8, 2, 1, 4});
  EXPECT_EQ((one.expected - outside({}).expected).count, 688'000'000);
  EXPECT_EQ((three.expected - one.expected).count, 2 * 500'000'000);
  EXPECT_LT((three.high - one.high).count, 2 * (one.high - outside({}).high).count);
  EXPECT_EQ(three.low, one.low);
}

}  // namespace
}  // namespace headroom::fit
