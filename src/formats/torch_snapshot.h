// Memory snapshots of PyTorch: torch.cuda.memory._dump_snapshot() and _snapshot(), every version
// from 2.0 (blocks with a `history`, almost no trace) to main (time_us, compile_context,
// user_metadata, pool ids).
//
// Plain structs that say what the file says; memory/snapshot_replay.h works on them. The file is
// read as a stream and no size in it is believed. Not thread-safe; 50 to 100 MB/s.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/byte_source.h"
#include "memory/allocator_settings.h"
#include "memory/snapshot.h"

namespace headroom::formats {

struct TorchFrame {
  uint32_t function = 0;  // into TorchSnapshot::texts
  uint32_t file = 0;
  int64_t line = 0;
};

struct TorchAnnotation {
  bool is_start = false;
  uint32_t name = 0;  // into TorchSnapshot::texts
  int64_t device = 0;
  int64_t time_us = 0;
};

struct TorchSnapshot {
  // One for each device that has segments or trace entries, by device number.
  std::vector<memory::Snapshot> devices;
  // What the file says of the allocator's settings; torch 2.0 says nothing.
  std::optional<memory::AllocatorSettings> settings;
  std::vector<TorchAnnotation> annotations;
  // Call stacks, innermost frame first; `stack` in segments, blocks and trace entries is an index
  // here, 0 being the empty one.
  std::vector<std::vector<uint32_t>> stacks;
  std::vector<TorchFrame> frames;
  std::vector<std::string> texts;
  // What was passed over, with its place; the rest of the file was read.
  std::vector<std::string> notes;
};

// Reads a snapshot, plain or gzip-compressed ("-" is standard input).
Result<TorchSnapshot> read_torch_snapshot(const std::string& path);
// The same from memory or any other source; plain only.
Result<TorchSnapshot> parse_torch_snapshot(ByteSource& source);

}  // namespace headroom::formats
