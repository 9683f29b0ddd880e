// Memory snapshots of PyTorch: torch.cuda.memory._dump_snapshot() and _snapshot(), every version
// from 2.0 (blocks with a `history`, almost no trace) to main (time_us, compile_context,
// user_metadata, pool ids, pinned host memory), and the ones that C++ writes itself.
//
// Plain structs that say what the file says; memory/snapshot_replay.h works on them. The file is
// read as a stream and no size in it is believed. Not thread-safe; 5 to 18 times as fast as
// Python's pickle.load, in less memory than three times the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/byte_source.h"
#include "memory/allocator_settings.h"
#include "memory/call_sites.h"
#include "memory/snapshot.h"

namespace headroom::formats {

struct TorchAnnotation {
  bool is_start = false;
  uint32_t name = 0;  // a text of TorchSnapshot::sites
  int64_t device = 0;
  int64_t time_us = 0;
};

struct TorchSnapshot {
  // One for each device that has segments or trace entries, by device number.
  std::vector<memory::Snapshot> devices;
  // What the file says of the allocator's settings; torch 2.0 says nothing.
  std::optional<memory::AllocatorSettings> settings;
  std::vector<TorchAnnotation> annotations;
  // Call stacks; `stack` in segments, blocks and trace entries is a number of one.
  memory::CallSites sites;
  // What was passed over, with its place; the rest of the file was read.
  std::vector<std::string> notes;
};

// Reads a snapshot, plain or gzip-compressed ("-" is standard input).
Result<TorchSnapshot> read_torch_snapshot(const std::string& path);
// The same from memory or any other source; plain only.
Result<TorchSnapshot> parse_torch_snapshot(ByteSource& source);

}  // namespace headroom::formats
