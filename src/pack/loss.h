// What was lost at the peak of a recorded run: how much of what the allocator held was of no use,
// in which segments it lay, and whose blocks kept those segments from being given back.
//
// The moment looked at is that of the last out-of-memory, where nothing later holds more in blocks:
// one that was caught, as in a search for a batch size, is not what the run was about. Else, of the
// time in which most was held, the moment with the most allocated: what is unused even then is lost
// for good. A snapshot without history has one moment only, that in which it was taken. Pure; O(n
// log n) in blocks and segments.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "pack/recording.h"

namespace headroom::pack {

struct PlannedRequest;

// What one call site has in one segment.
struct Holder {
  uint32_t site = 0;  // of Recording::sites
  size_t blocks = 0;
  Bytes bytes;
};

struct StrandedSegment {
  int64_t address = 0;
  int64_t stream = 0;  // torch's handle
  bool is_expandable = false;
  Bytes size;
  Bytes stranded;     // in it, and in no block
  Bytes largest_gap;  // in one piece
  size_t blocks = 0;
  std::vector<Holder> holders;  // the most bytes first
};

// A call site whose blocks lie in segments with room to spare.
struct PinningSite {
  uint32_t site = 0;
  size_t segments = 0;
  size_t blocks = 0;
  Bytes bytes;           // of its blocks there
  Bytes stranded;        // in those segments, whoever else is in them
  Bytes stranded_alone;  // in those where nobody else is
};

struct LossAtPeak {
  int64_t moment = 0;
  bool is_end_state = false;               // no history was recorded, so this is no peak
  std::optional<double> seconds;           // since the recording began
  std::optional<RecordedFailure> failure;  // where the moment is one
  uint32_t site = 0;                       // of the entry before the moment
  Bytes reserved;
  Bytes allocated;  // in blocks
  Bytes requested;  // of that, what was asked for
  Bytes stranded;   // in segments with a block in them
  Bytes cached;     // in segments without one: empty_cache() would give it back
  std::vector<StrandedSegment> segments;  // the most stranded first; none that strands nothing
  std::vector<PinningSite> sites;         // the same
  size_t homeless_blocks = 0;             // in no segment: the recording contradicts itself

  [[nodiscard]] Bytes lost() const { return stranded + cached; }
};

// Nothing where nothing was held. `requests` are the answer's, one for each block of `recording`.
[[nodiscard]] std::optional<LossAtPeak> loss_at_peak(const std::vector<PlannedRequest>& requests,
                                                     const Recording& recording);

// Bytes at each moment from 0 to `end` - 1.
struct MemoryOverTime {
  std::vector<int64_t> allocated;  // in blocks
  std::vector<int64_t> reserved;
};
[[nodiscard]] MemoryOverTime memory_over_time(const std::vector<PlannedRequest>& requests,
                                              const Recording& recording);

}  // namespace headroom::pack
