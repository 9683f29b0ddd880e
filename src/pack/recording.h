// Recording: what a recorded run says beside its requests, as far as the answer and its page need
// it: where each block really lay and who asked for it, what was held from the driver and when.
//
// Plain data. Moments are those of memory::RecordedRequest: moment t is after
// entry t - 1 of the trace, and `end` is one past the last. Safe to read from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "formats/torch_snapshot.h"
#include "memory/packing/held_memory.h"
#include "memory/packing/recorded_requests.h"
#include "pack/site_names.h"

namespace headroom::pack {

struct RecordedBlock {
  int64_t address = 0;
  int64_t size = 0;    // as the allocator rounds it
  uint32_t stack = 0;  // for SiteNames
};

// An attempt that found no memory.
struct RecordedFailure {
  int64_t moment = 0;
  Bytes tried;
  Bytes device_free;
  uint32_t stack = 0;
};

struct Recording {
  bool is_simulated = false;  // nobody recorded it: PyTorch's allocator was simulated
  // An allocation was recorded. Without one there is only the state in which a snapshot found the
  // allocator, and nothing is known of any peak.
  bool has_history = true;
  std::vector<RecordedBlock> blocks;  // by request of the answer
  std::vector<memory::HeldRange> held;
  std::vector<RecordedFailure> failures;
  SiteNames sites;
  int64_t end = 1;
  // Microseconds since the first entry, by entry; empty where the recording has no times.
  std::vector<int64_t> entry_us;
  // The call stack of the entry before each moment, for naming a moment; 0 where there is none.
  std::vector<uint32_t> entry_stack;
};

// `requests` are those of `device`, a part of `snapshot`; linear.
[[nodiscard]] Recording recording_of(const formats::TorchSnapshot& snapshot,
                                     const memory::Snapshot& device,
                                     const std::vector<memory::RecordedRequest>& requests);

}  // namespace headroom::pack
