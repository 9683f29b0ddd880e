// Our figures in PyTorch's words (c10/core/CachingDeviceAllocator.h), to be added to those of the
// native allocator: what the pools hold lies there.
//
// Counts and bytes of the two are sums. So are the peaks, which makes them an upper bound where the
// two were not highest at the same time; without pools they are ours alone, and exact.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <vector>

#include "ours.h"

namespace headroom::shim {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::SegmentInfo;

inline headroom_statistics our_statistics(c10::DeviceIndex device) {
  headroom_statistics statistics{};
  statistics.struct_bytes = sizeof statistics;
  ours.get_statistics(device, &statistics);  // zeros where the device was not used
  return statistics;
}

inline size_t our_allocated_bytes(c10::DeviceIndex device) {
  return static_cast<size_t>(our_statistics(device).allocated_bytes.current);
}

inline void add(Stat& sum, const headroom_figure& figure) {
  sum.current += figure.current;
  sum.peak += figure.peak;
  sum.allocated += figure.allocated;
  sum.freed += figure.freed;
}

// We have one pool, shown as the large one.
inline void add(StatArray& sums, const headroom_figure& figure) {
  add(sums[static_cast<size_t>(StatType::AGGREGATE)], figure);
  add(sums[static_cast<size_t>(StatType::LARGE_POOL)], figure);
}

inline void add(DeviceStats& sum, const headroom_statistics& s) {
  add(sum.allocation, s.allocation);
  add(sum.segment, s.segment);
  add(sum.active, s.active);
  add(sum.inactive_split, s.inactive_split);
  add(sum.allocated_bytes, s.allocated_bytes);
  add(sum.reserved_bytes, s.reserved_bytes);
  add(sum.active_bytes, s.active_bytes);
  add(sum.inactive_split_bytes, s.inactive_split_bytes);
  add(sum.requested_bytes, s.requested_bytes);
  sum.num_alloc_retries += s.num_alloc_retries;
  sum.num_ooms += s.num_ooms;
  sum.num_sync_all_streams += s.num_sync_all_streams;
  sum.num_device_alloc += s.num_device_alloc;
  sum.num_device_free += s.num_device_free;
}

inline SegmentInfo segment_of(const headroom_segment& segment) {
  SegmentInfo made;
  made.device = static_cast<c10::DeviceIndex>(segment.device);
  made.address = static_cast<size_t>(segment.address);
  made.total_size = static_cast<size_t>(segment.bytes);
  made.stream = segment.stream;
  made.is_large = segment.is_small == 0;
  made.is_expandable = segment.is_paged != 0;
  made.owner_private_pool_id = {segment.pool_first, segment.pool_second};
  for (int64_t i = 0; i < segment.block_count; ++i) {
    const headroom_block& block = segment.blocks[i];
    BlockInfo info;
    info.size = static_cast<size_t>(block.bytes);
    info.requested_size = static_cast<size_t>(block.requested_bytes);
    info.allocated = block.state == HEADROOM_BLOCK_LIVE;
    info.active = block.state != HEADROOM_BLOCK_FREE;
    made.requested_size += info.requested_size;
    made.allocated_size += info.allocated ? info.size : 0;
    made.active_size += info.active ? info.size : 0;
    made.blocks.push_back(std::move(info));
  }
  return made;
}

inline void add_segments(std::vector<SegmentInfo>& segments, int device) {
  ours.visit_segments(
      device,
      [](const headroom_segment* segment, void* context) {
        static_cast<std::vector<SegmentInfo>*>(context)->push_back(segment_of(*segment));
      },
      &segments);
}

}  // namespace headroom::shim
