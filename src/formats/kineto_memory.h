// The memory events of a PyTorch profiler's trace: torch.profiler with profile_memory=True,
// exported as JSON, plain or gzip-compressed.
//
// Instant events named "[memory]" with Addr, Bytes (negative where a block is released) and the
// device's totals. Brought into the form of a snapshot with nothing but a trace, so that all that
// works on recordings works on them; what such a trace cannot say is said in the notes. Streams
// through a file of any size, at about the speed of text/json_items.h; memory grows with the memory
// events alone. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/torch_snapshot.h"
#include "text/byte_feed.h"

namespace headroom::formats {

struct KinetoMemory {
  TorchSnapshot snapshot;
  // By device of the snapshot: what the allocator itself counted, the most of each.
  struct Totals {
    int64_t peak_allocated_bytes = 0;
    int64_t peak_reserved_bytes = 0;  // 0: not counted, as for a CPU
    // Of it, in blocks that the trace never names: from before it, and never given back in it.
    int64_t unnamed_bytes = 0;
  };
  std::vector<Totals> totals;
  bool is_cpu = false;      // no GPU has a memory event, so the CPU's are shown
  bool is_partial = false;  // the trace was cut, or had events that could not be read
};

// Reads a file ("-" is standard input) or memory. Events of GPUs where there are any, else of the
// CPU. A trace without memory events is an Error that says how to record them.
Result<KinetoMemory> read_kineto_memory(const std::string& path);
Result<KinetoMemory> parse_kineto_memory(text::ByteFeed feed);

}  // namespace headroom::formats
