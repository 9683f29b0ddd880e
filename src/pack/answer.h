// PackAnswer: what `headroom pack` found, as plain values; report/ makes text and JSON of it.
//
// Field names are the JSON keys, without their units.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "memory/allocator_settings.h"
#include "memory/packing/problem.h"
#include "pack/loss.h"
#include "pack/recording.h"
#include "pack/understanding.h"

namespace headroom::pack {

// A request with what is known of it, and where the plan puts it.
struct PlannedRequest {
  std::string id;
  int64_t stream = 0;  // an index; each stream has a range of the plan to itself
  memory::PackingRequest request;
  int64_t offset = 0;
  // When the program gave it back; request.upper is later where another stream still used it.
  int64_t released = std::numeric_limits<int64_t>::max();
};

struct PlanFigures {
  Bytes size;
  double gap_pct = 0;      // over the lower bound
  double seconds = 0;      // of planning, without reading and checking
  double cpu_seconds = 0;  // the same, over all cores
  std::string method;      // what made the highest part of it
  // No plan is shorter: because it is at the lower bound, or because a search has shown it.
  bool is_optimal = false;
  Bytes proven_bound;
  std::vector<Bytes> stream_bytes{};  // the streams' parts of it, one after the other
};

// What lay where when it was recorded. peak_allocated is the same for all allocators and the
// recorded one, so that efficiencies can be compared: the most bytes of requests that live at one
// moment, each rounded up to the alignment, from its allocation until no stream uses it any more.
struct RecordedFigures {
  Bytes peak_allocated;
  Bytes peak_reserved;
  double efficiency = 0;  // peak_allocated / peak_reserved
  // What PyTorch counts as allocated, at most: whole blocks, also where one is larger than its
  // request because the rest was too small to split off; but not blocks that were given back and
  // that another stream still uses. torch.cuda.max_memory_allocated() of the recorded time.
  Bytes max_memory_allocated{};
};

// The same requests in the same order under another allocator or other settings of it.
struct AllocatorFigures {
  std::string name;      // "torch", "torch-expandable", ..., "planned"
  std::string setting;   // for PYTORCH_CUDA_ALLOC_CONF; empty where there is nothing to set
  Bytes peak_allocated;  // as in RecordedFigures, the same for all
  Bytes peak_reserved;
  double efficiency = 0;         // peak_allocated / peak_reserved
  std::optional<Bytes> limit{};  // that it was given; garbage collection does nothing without one
};

struct PackAnswer {
  std::string file;
  std::string kind;  // "PyTorch snapshot", "recording", "profiler trace" or "CSV instance"
  int64_t device = 0;
  size_t streams = 1;
  int64_t alignment = 1;
  std::vector<PlannedRequest> requests;
  Bytes lower_bound;  // the most that lives at one moment, sizes rounded up to the alignment
  PlanFigures plan;
  std::optional<memory::AllocatorSettings>
      settings;  // that it was recorded under, where it says so
  std::optional<RecordedFigures> recorded;
  std::optional<Recording> recording;  // where the file is one
  std::optional<LossAtPeak> loss;      // the same, where it says what was held
  std::vector<int64_t> marks;          // moments at which the user's iterations begin
  // What the recorded program's streams wait for. Streams are numbered as those of requests; those
  // without requests come behind them.
  std::vector<memory::OrderEvent> order;
  std::optional<Understanding> understanding;  // of a recording
  std::vector<AllocatorFigures> allocators;    // the least reserved first
  std::optional<Bytes> capacity;               // that was asked for
  std::vector<std::string> notes;              // what was assumed or passed over
  bool is_partial = false;  // part of the file could not be read; the notes say which

  [[nodiscard]] bool fits() const { return !capacity || plan.size <= *capacity; }
};

}  // namespace headroom::pack
