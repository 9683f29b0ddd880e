// PyTorch's out-of-memory messages, as people paste them: out of a log, a terminal or an issue, cut
// and wrapped, with prefixes on every line.
//
// Nothing is required but the words that name an out-of-memory; each figure that is there is kept.
// The wordings are those of PyTorch's own code, c10/cuda/CUDACachingAllocator.cpp unless named:
//  - to 2.0: "Tried to allocate A (GPU n; B total capacity; C already allocated; D free; [E
//    allowed; ]F reserved in total by PyTorch)"; until 1.3 it ends "; F cached)", where F is what
//    is reserved beyond C.
//  - from 2.1: "Tried to allocate A. GPU n has a total capacity of B of which C is free. [process
//    lines] [G allowed; ]Of the allocated memory D is allocated by PyTorch, [with F allocated in
//    private pools (e.g., CUDA Graphs), ]and E is reserved by PyTorch but unallocated."; at first
//    it said "capacty" and knew no private pools. What is free inside such a pool is F, and D has
//    it in it. The process lines are "Including non-PyTorch memory, this process has H memory in
//    use." and "Process n has H memory in use.".
//  - XPU (c10/xpu/XPUCachingAllocator.cpp): the second form, at first without "of which C is free".
//  - MPS (aten/src/ATen/mps/MPSAllocator.mm): "MPS backend out of memory (MPS allocated: A, other
//    allocations: B[, max allowed: C]). Tried to allocate T on private|shared pool". A is what the
//    allocator's heaps hold after it has given back what it cached, B what else the process has on
//    the device. Until 2.5 or so its units say "MB" and "GB", of 1,024 each all the same.
//    And "Invalid buffer size: T", of one buffer that is larger than Metal makes them.
//  - cudaMallocAsync (c10/cuda/CUDAMallocAsyncAllocator.cpp): "would exceed allowed memory. (out of
//    memory)", then "Currently allocated : A", "Requested : T", "Device limit : B", "Free
//    (according to CUDA): C" and "PyTorch limit (set by user-supplied memory fraction) : D", a line
//    each.
//  - without figures: "CUDA error: out of memory", "HIP error: ...", "CUDA driver error: out of
//  memory", the
//    libraries' CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_ALLOC_FAILED and NCCL's "Cuda failure ...
//    'out of memory'"; and the host's, "DefaultCPUAllocator: ... you tried to allocate A bytes".
// Sizes are those of format_size(): "512 bytes", "1.50 KiB", "20.00 MiB", "9.35 GiB", rounded to
// hundredths of their unit. Pure, any thread, linear in the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace headroom::formats {

// Who ran out of memory: PyTorch's allocator, which gives figures, or somebody beside it.
enum class OomSource : uint8_t { torch, mps, cuda_runtime, cuda_driver, cublas, cudnn, nccl, host };

struct OomProcess {
  std::optional<int64_t> pid;  // nothing: "this process"
  Bytes used;
  bool operator==(const OomProcess&) const = default;
};

struct OomMessage {
  OomSource source = OomSource::torch;
  std::string backend;            // "CUDA", "HIP", "XPU", ...: the word before "out of memory"
  std::optional<int64_t> device;  // "GPU n"
  std::optional<Bytes> tried;
  std::optional<Bytes> total;
  std::optional<Bytes> free;
  std::optional<Bytes> allocated;      // by PyTorch, private pools with it
  std::optional<Bytes> unallocated;    // reserved by PyTorch beyond that
  std::optional<Bytes> private_pools;  // free inside private pools: of CUDA graphs mostly
  std::optional<Bytes> allowed;        // by a memory fraction, or MPS's watermark
  std::optional<Bytes> beside;         // MPS: of this process, beside PyTorch's allocator
  std::vector<OomProcess> processes;
  // A figure that the wording has cannot be read, as where the text ends within the message: of
  // what it lacks nothing is known.
  bool is_cut = false;
  int64_t line = 1;   // where it begins in the text
  int64_t count = 1;  // how often it is there word for word

  [[nodiscard]] std::optional<Bytes> reserved() const;
  // The same but for where and how often it stands.
  [[nodiscard]] bool says_the_same(const OomMessage& other) const;
};

inline constexpr size_t kMostOomMessages = 1024;

// Every different message, in the order of the text. No message at all is an error.
Result<std::vector<OomMessage>> parse_oom_messages(std::string_view text, const std::string& file);

// "torch", "cuda_runtime", ...
[[nodiscard]] std::string_view name_of(OomSource source);

}  // namespace headroom::formats
