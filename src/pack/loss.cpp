#include "pack/loss.h"

#include <algorithm>
#include <map>
#include <set>

#include "pack/answer.h"

namespace headroom::pack {
namespace {

// Sums of what a hostile file says stay where they are instead of wrapping.
void add(int64_t& sum, int64_t amount) { sum = checked_add(sum, amount).value_or(sum); }

void add_span(std::vector<int64_t>& changes, int64_t lower, int64_t upper, int64_t bytes) {
  const auto last = static_cast<int64_t>(changes.size()) - 1;
  if (lower < 0 || lower >= upper || lower >= last) return;
  add(changes[static_cast<size_t>(lower)], bytes);
  add(changes[static_cast<size_t>(std::min(upper, last))], -bytes);
}

std::vector<int64_t> running_sums(std::vector<int64_t> changes) {
  int64_t sum = 0;
  for (int64_t& change : changes) {
    add(sum, change);
    change = sum;
  }
  changes.pop_back();
  return changes;
}

// The last, where the run came to hold no more than then.
const RecordedFailure* failure_of_interest(const MemoryOverTime& over_time,
                                           const Recording& recording) {
  if (recording.failures.empty()) return nullptr;
  const RecordedFailure& last = recording.failures.back();
  const auto then = over_time.allocated.begin() + last.moment;
  return *std::max_element(then, over_time.allocated.end()) > *then ? nullptr : &last;
}

int64_t peak_moment(const MemoryOverTime& over_time, const Recording& recording) {
  if (!recording.has_history) return recording.end - 1;
  const int64_t most = *std::max_element(over_time.reserved.begin(), over_time.reserved.end());
  int64_t best = 0;
  int64_t allocated = -1;
  for (size_t t = 0; t < over_time.reserved.size(); ++t) {
    if (over_time.reserved[t] != most || over_time.allocated[t] <= allocated) continue;
    allocated = over_time.allocated[t];
    best = static_cast<int64_t>(t);
  }
  return best;
}

// What is held at a moment, in address order; pieces of an expandable segment that touch are one.
std::vector<StrandedSegment> segments_at(const Recording& recording, int64_t moment) {
  std::vector<StrandedSegment> segments;
  for (const memory::HeldRange& range : recording.held) {
    if (range.lower > moment || range.upper <= moment) continue;
    StrandedSegment segment;
    segment.address = range.address;
    segment.stream = range.stream;
    segment.is_expandable = range.is_expandable;
    segment.size = Bytes(range.size);
    segments.push_back(segment);
  }
  std::sort(segments.begin(), segments.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  std::vector<StrandedSegment> merged;
  for (StrandedSegment& segment : segments) {
    const bool touches = !merged.empty() && segment.is_expandable && merged.back().is_expandable &&
                         merged.back().stream == segment.stream &&
                         merged.back().address + merged.back().size.count == segment.address;
    if (touches) {
      merged.back().size += segment.size;
    } else {
      merged.push_back(std::move(segment));
    }
  }
  return merged;
}

struct LiveBlock {
  int64_t address = 0;
  int64_t size = 0;
  uint32_t site = 0;
};

class LossFinder {
 public:
  LossFinder(const std::vector<PlannedRequest>& requests, const Recording& recording)
      : requests_(requests), recording_(recording) {}

  // At the failure; without one at the moment.
  LossAtPeak find(const RecordedFailure* failure, int64_t moment) {
    if (failure != nullptr) loss_.failure = *failure;
    loss_.moment = failure != nullptr ? failure->moment : moment;
    loss_.is_end_state = !recording_.has_history && failure == nullptr;
    name_moment();
    segments_ = segments_at(recording_, loss_.moment);
    collect_blocks();
    for (const StrandedSegment& segment : segments_) loss_.reserved += segment.size;
    size_t at = 0;
    for (StrandedSegment& segment : segments_) at = fill(segment, at);
    rank();
    return std::move(loss_);
  }

 private:
  void name_moment() {
    const int64_t entry = loss_.moment - 1;
    if (entry < 0) return;
    const auto index = static_cast<size_t>(entry);
    if (index < recording_.entry_us.size()) {
      loss_.seconds = static_cast<double>(recording_.entry_us[index]) * 1e-6;
    }
    if (index < recording_.entry_stack.size()) {
      loss_.site = recording_.sites.site_of(recording_.entry_stack[index]);
    }
  }

  void collect_blocks() {
    for (size_t i = 0; i < requests_.size() && i < recording_.blocks.size(); ++i) {
      const memory::PackingRequest& request = requests_[i].request;
      if (request.lower > loss_.moment || request.upper <= loss_.moment) continue;
      const RecordedBlock& block = recording_.blocks[i];
      if (block.size <= 0) continue;
      add(loss_.requested.count, request.size);
      blocks_.push_back({block.address, block.size, recording_.sites.site_of(block.stack)});
    }
    std::sort(blocks_.begin(), blocks_.end(),
              [](const LiveBlock& a, const LiveBlock& b) { return a.address < b.address; });
  }

  // Behind a block of a large segment so little is left of it only where it was not split off: the
  // block has it, though the request did not ask for it (should_split of PyTorch's allocator).
  static int64_t least_gap_of(const StrandedSegment& segment) {
    const bool splits_all = segment.is_expandable || segment.size.count <= memory::kSmallBuffer;
    return splits_all ? 0 : memory::kSmallSize + 1;
  }

  static void take_gap(int64_t gap, int64_t least, StrandedSegment& segment, int64_t& padding) {
    if (gap < least && segment.blocks > 0) {
      padding += gap;
    } else {
      segment.largest_gap = std::max(segment.largest_gap, Bytes(gap));
    }
  }

  // The blocks from `at` on that lie in the segment; returns the first behind it.
  size_t fill(StrandedSegment& segment, size_t at) {
    const int64_t end = segment.address + segment.size.count;
    std::map<uint32_t, Holder> holders;
    int64_t used_to = segment.address;
    int64_t used = 0;
    const int64_t least_gap = least_gap_of(segment);
    int64_t padding = 0;
    for (; at < blocks_.size() && blocks_[at].address < end; ++at) {
      const LiveBlock& block = blocks_[at];
      // Beyond both ends of the segment, or over the block before it: not to be believed.
      if (block.address < used_to || block.size > end - block.address) {
        ++loss_.homeless_blocks;
        continue;
      }
      take_gap(block.address - used_to, least_gap, segment, padding);
      used_to = block.address + block.size;
      used += block.size;
      ++segment.blocks;
      Holder& holder = holders[block.site];
      holder.site = block.site;
      ++holder.blocks;
      holder.bytes += Bytes(block.size);
    }
    take_gap(end - used_to, least_gap, segment, padding);
    used += padding;
    segment.stranded = segment.size - Bytes(used);
    loss_.allocated += Bytes(used);
    (segment.blocks == 0 ? loss_.cached : loss_.stranded) += segment.stranded;
    for (const auto& [site, holder] : holders) segment.holders.push_back(holder);
    std::stable_sort(segment.holders.begin(), segment.holders.end(),
                     [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
    return at;
  }

  void rank() {
    loss_.homeless_blocks += static_cast<size_t>(
        std::count_if(blocks_.begin(), blocks_.end(), [&](const LiveBlock& block) {
          return segments_.empty() ||
                 block.address >= segments_.back().address + segments_.back().size.count;
        }));
    std::map<uint32_t, PinningSite> sites;
    for (const StrandedSegment& segment : segments_) {
      if (segment.stranded.count == 0) continue;
      for (const Holder& holder : segment.holders) {
        PinningSite& site = sites[holder.site];
        site.site = holder.site;
        ++site.segments;
        site.blocks += holder.blocks;
        site.bytes += holder.bytes;
        site.stranded += segment.stranded;
        if (segment.holders.size() == 1) site.stranded_alone += segment.stranded;
      }
    }
    for (const auto& [index, site] : sites) loss_.sites.push_back(site);
    std::stable_sort(
        loss_.sites.begin(), loss_.sites.end(),
        [](const PinningSite& a, const PinningSite& b) { return a.stranded > b.stranded; });
    for (StrandedSegment& segment : segments_) {
      if (segment.stranded.count > 0) loss_.segments.push_back(std::move(segment));
    }
    std::stable_sort(
        loss_.segments.begin(), loss_.segments.end(),
        [](const StrandedSegment& a, const StrandedSegment& b) { return a.stranded > b.stranded; });
  }

  const std::vector<PlannedRequest>& requests_;
  const Recording& recording_;
  std::vector<StrandedSegment> segments_;
  std::vector<LiveBlock> blocks_;
  LossAtPeak loss_;
};

}  // namespace

MemoryOverTime memory_over_time(const std::vector<PlannedRequest>& requests,
                                const Recording& recording) {
  const auto moments = static_cast<size_t>(std::max<int64_t>(recording.end, 1));
  std::vector<int64_t> allocated(moments + 1);
  std::vector<int64_t> reserved(moments + 1);
  for (size_t i = 0; i < requests.size() && i < recording.blocks.size(); ++i) {
    add_span(allocated, requests[i].request.lower, requests[i].request.upper,
             recording.blocks[i].size);
  }
  for (const memory::HeldRange& range : recording.held) {
    add_span(reserved, range.lower, range.upper, range.size);
  }
  return {running_sums(std::move(allocated)), running_sums(std::move(reserved))};
}

std::optional<LossAtPeak> loss_at_peak(const std::vector<PlannedRequest>& requests,
                                       const Recording& recording) {
  if (recording.held.empty()) return std::nullopt;
  const MemoryOverTime over_time = memory_over_time(requests, recording);
  return LossFinder(requests, recording)
      .find(failure_of_interest(over_time, recording), peak_moment(over_time, recording));
}

}  // namespace headroom::pack
