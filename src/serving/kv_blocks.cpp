#include "serving/kv_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::serving {

int64_t KvBlocks::hits(std::span<const uint64_t> hashes) const {
  const auto missing = std::find_if(hashes.begin(), hashes.end(),
                                    [&](uint64_t hash) { return !groups_.contains(hash); });
  return missing - hashes.begin();
}

bool KvBlocks::take(std::span<const uint64_t> hashes, int64_t blocks, int64_t watermark) {
  const int64_t revived = std::count_if(hashes.begin(), hashes.end(),
                                        [&](uint64_t hash) { return groups_.at(hash).users == 0; });
  if (blocks + watermark > available() - revived * grain_) return false;
  for (const uint64_t hash : hashes) {
    Group& group = groups_.at(hash);
    if (group.users++ == 0) evictable_.erase(group.place);
  }
  while (free_ < blocks) {
    groups_.erase(evictable_.front());
    evictable_.pop_front();
    free_ += grain_;
  }
  free_ -= blocks;
  return true;
}

bool KvBlocks::share(uint64_t hash) {
  return groups_.try_emplace(hash, Group{.users = 1, .place = {}}).second;
}

void KvBlocks::release(std::span<const uint64_t> hashes, int64_t blocks) {
  free_ += blocks;
  for (auto hash = hashes.rbegin(); hash != hashes.rend(); ++hash) {
    Group& group = groups_.at(*hash);
    HEADROOM_CHECK(group.users > 0, "a group that somebody uses");
    if (--group.users == 0) group.place = evictable_.insert(evictable_.end(), *hash);
  }
  HEADROOM_CHECK(available() <= all_, "no block is given back twice");
}

}  // namespace headroom::serving
