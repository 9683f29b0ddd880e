// Where a symbolic run reports what it does: blocks asked for and given back, kernels launched.
//
// The room `step` implements this to build the ordered list that everything else reads.
#pragma once

#include <cstdint>

#include "operator/kind.h"
#include "operator/permuted.h"

namespace headroom::op {

// One kernel's work. Bytes are what the algorithm must move at least once, not cache traffic.
struct KernelWork {
  OpKind kind{};
  double flops = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  uint8_t element_bytes = 0;  // of the type that is computed in, where it decides the units; or 0
  // Where the operator says them, else 0: the rows of what a product or a kernel that goes row by
  // row makes; of attention a sequence's queries, and its keys.
  int64_t rows = 0;
  int64_t keys = 0;
  Permuted permuted{};
  bool has_bias = false;       // a product that begins with a bias in each row of its result
  bool before_hopper = false;  // attention by a kernel that has none of Hopper's instructions
};

// The name of a block that was never asked for: see Eager::set_muted.
inline constexpr uint32_t kNoBuffer = UINT32_MAX;

class Sink {
 public:
  virtual ~Sink() = default;
  // A block of `bytes` is asked for; returns the name by which it is freed. Zero bytes are legal.
  virtual uint32_t on_allocate(int64_t bytes) = 0;
  virtual void on_free(uint32_t buffer) = 0;
  // The same for a library's workspace, which belongs to no part of the model.
  virtual uint32_t on_workspace(int64_t bytes) { return on_allocate(bytes); }
  virtual void on_kernel(const KernelWork& work) = 0;
  // A collective among a tensor-parallel group's ranks: what this rank puts in is read, what it
  // gets is written. What is launched next waits for it.
  virtual void on_collective(const KernelWork& work) { on_kernel(work); }
  // What is launched next waits for what was sent last to a neighbour on a ring.
  virtual void on_await_sent() {}
  // The block is kept for backward. May be called more than once for the same block.
  virtual void on_saved(uint32_t buffer) = 0;
  // What follows belongs to this part of the model, until the next call.
  virtual void on_module(uint32_t module) = 0;
};

}  // namespace headroom::op
