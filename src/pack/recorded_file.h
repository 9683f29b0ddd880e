// A recording from a file, whatever kind it is of, in the one form that the rest of pack works on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/torch_snapshot.h"
#include "memory/plan/order_history.h"

namespace headroom::pack {

struct RecordedFile {
  std::string kind;  // "PyTorch snapshot", "recording", "profiler trace"
  formats::TorchSnapshot snapshot;
  // What the allocator counted itself, by device of the snapshot; empty where the file has segments
  // to count, and a peak of 0 where neither is known.
  struct Counted {
    int64_t allocated_bytes = 0;
    int64_t reserved_bytes = 0;
    int64_t unnamed_bytes = 0;  // of allocated_bytes, in blocks that the file never names
  };
  std::vector<Counted> counted;
  // What the program's streams wait for, by handle; times are those of requests. Only of a
  // recording of our own, which has one device.
  std::vector<memory::OrderEvent> order;
  bool is_partial = false;  // it was cut, or part of it could not be read; the notes say which
};

// By its first bytes: a pickle (docs: torch.cuda.memory._dump_snapshot()), a recording of our own
// (docs/formats/recording.md), or a profiler's trace with memory events; gzip around the first and
// the last. Nothing where it is none of them, and so a CSV instance if anything.
Result<std::optional<RecordedFile>> read_recorded_file(const std::string& file);
// The same from memory; `name` is for errors.
Result<std::optional<RecordedFile>> parse_recorded_file(std::string_view content,
                                                        const std::string& name);

}  // namespace headroom::pack
