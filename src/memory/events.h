// MemoryTrace: what a step asks of the allocator, in order.
//
// The symbolic step writes one (step/), recorded snapshots are turned into one (formats/), and the
// allocator simulators and the planner read it. A buffer is one allocation: it is born at its
// `alloc` event, may be released once by a `free`, and otherwise lives to the end of the trace.
// What exists before the step (parameters, optimizer states) is simply the first events.
//
// Plain data, no invariants enforced on writing; `validate_trace` states and checks them. Twelve
// bytes an event and 24 a buffer, so a step of 50,000 allocations is about 2.5 MB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::memory {

// What a buffer is for. lm_head, logits and loss stand apart from the rest of the transformer
// everywhere, since they are what changes with the vocabulary.
enum class Category : uint8_t {
  parameter,
  gradient,
  optimizer_state,
  activation,  // saved for backward, or an output that is still needed
  lm_head_weight,
  lm_head_gradient,
  lm_head_state,
  logits,
  loss,
  temporary,  // made and released inside one operator or between neighbours
  workspace,  // cuBLAS and other libraries' scratch that goes through the allocator
  input,
  gathered,       // of parameters that several ranks share, while this one has them whole
  communication,  // what collectives send and receive besides: gradients' buckets
  kv_cache,       // keys and values of earlier tokens, in generation
  other,
};
inline constexpr size_t kCategoryCount = static_cast<size_t>(Category::other) + 1;

// "parameter", "optimizer_state", ...: the enumerator's own spelling, which is also the JSON key.
[[nodiscard]] std::string_view category_name(Category category);

struct BufferInfo {
  int64_t requested_bytes = 0;  // what was asked for, before any rounding
  uint32_t stream = 0;          // an index; the allocator keeps each stream's blocks apart
  uint32_t label = 0;           // the maker's own id of a name (operator, tensor); 0 is "none"
  Category category = Category::other;
};

enum class EventKind : uint8_t { alloc, free };

struct MemoryEvent {
  EventKind kind = EventKind::alloc;
  uint32_t buffer = 0;     // index into MemoryTrace::buffers
  uint32_t operation = 0;  // index of the operator that caused it, in the maker's numbering
};

// Tensor.record_stream(): a buffer that another stream uses, too. What is freed of it comes back
// when that stream has got so far.
struct StreamUse {
  uint32_t buffer = 0;
  uint32_t stream = 0;
  bool operator==(const StreamUse&) const = default;
};

// From before event `event` on the program knows of `count` more of its frees, in their order, that
// `stream` has got past them.
struct StreamProgress {
  size_t event = 0;
  uint32_t stream = 0;
  size_t count = 0;
  bool operator==(const StreamProgress&) const = default;
};

struct MemoryTrace {
  std::vector<BufferInfo> buffers;
  std::vector<MemoryEvent> events;
  // Before which events the program called torch.cuda.empty_cache(): ascending indices, at most one
  // behind the last.
  std::vector<size_t> cache_emptied;
  std::vector<StreamUse> stream_uses;           // at most one a buffer
  std::vector<StreamProgress> stream_progress;  // in the order of events

  void empty_cache() { cache_emptied.push_back(events.size()); }
  // Adds a buffer and its alloc event; returns the buffer's index.
  uint32_t alloc(const BufferInfo& info, uint32_t operation) {
    const auto buffer = static_cast<uint32_t>(buffers.size());
    buffers.push_back(info);
    events.push_back({EventKind::alloc, buffer, operation});
    return buffer;
  }
  // Adds a free event of a buffer that `alloc` returned.
  void free(uint32_t buffer, uint32_t operation) {
    events.push_back({EventKind::free, buffer, operation});
  }
};

// Checks that every event names a buffer that exists, that each buffer is allocated at most once
// and freed at most once, after it was allocated, that no size is negative, and that the cache is
// emptied and streams get on in order. The error names the event's index. Linear time.
Result<void> validate_trace(const MemoryTrace& trace);

}  // namespace headroom::memory
