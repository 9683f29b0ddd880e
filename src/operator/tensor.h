// Tensors without data: shape, strides, type, storage, and what autograd hangs on them.
//
// A Tensor is a counted handle as in PyTorch: views share a storage, and the storage's bytes go
// back to the allocator when the last handle to any of its tensors goes. So the C++ lifetimes in
// this room and in the models' forward functions *are* the model of Python's and autograd's
// lifetimes. Not thread-safe; each step is built by one thread.
#pragma once

#include <cstdint>

#include "base/inline_vector.h"
#include "operator/dtype.h"
#include "operator/pool.h"
#include "operator/ref.h"

namespace headroom::op {

inline constexpr size_t kDimsMax = 8;
// Sizes or strides, in elements.
using Dims = InlineVector<int64_t, kDimsMax>;

class Sink;
struct Node;
void destroy(Node* node);
using NodeRef = Ref<Node>;

// One block of memory asked of the allocator.
struct Storage {
  uint32_t refs = 0;
  uint32_t buffer = 0;  // the sink's name for the block
  int64_t bytes = 0;    // as requested, before the allocator rounds
  Sink* sink = nullptr;

  static void* operator new(size_t size);
  static void operator delete(void* memory);
};
void destroy(Storage* storage);

struct TensorImpl;
void destroy(TensorImpl* tensor);

class Tensor : public Ref<TensorImpl> {
 public:
  using Ref<TensorImpl>::Ref;

  [[nodiscard]] const Dims& sizes() const;
  [[nodiscard]] const Dims& strides() const;
  [[nodiscard]] int64_t size(int dim) const;  // negative dims count from the end
  [[nodiscard]] int rank() const;
  [[nodiscard]] int64_t elements() const;
  [[nodiscard]] int64_t bytes() const;  // of the elements, not of the storage
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] bool requires_grad() const;
  [[nodiscard]] bool is_contiguous() const;
};

struct TensorImpl {
  uint32_t refs = 0;
  DType dtype = DType::f32;
  bool requires_grad = false;
  bool is_parameter = false;   // a leaf that the model owns
  uint32_t output_number = 0;  // which output of grad_fn
  Ref<Storage> storage;
  Dims sizes;
  Dims strides;
  NodeRef grad_fn;              // null for leaves
  Node* accumulator = nullptr;  // leaves only: the live AccumulateGrad node, not owned
  Tensor grad;                  // leaves only
  Tensor base;                  // views only: the tensor that was first viewed, kept by the view

  static void* operator new(size_t size);
  static void operator delete(void* memory);
};

inline const Dims& Tensor::sizes() const { return get()->sizes; }
inline const Dims& Tensor::strides() const { return get()->strides; }
inline int Tensor::rank() const { return static_cast<int>(get()->sizes.size()); }
inline DType Tensor::dtype() const { return get()->dtype; }
inline bool Tensor::requires_grad() const { return get()->requires_grad; }

// Strides of a contiguous tensor of these sizes.
[[nodiscard]] Dims contiguous_strides(const Dims& sizes);
[[nodiscard]] bool is_contiguous(const Dims& sizes, const Dims& strides);
// Every element of a dense block is used once, in whatever order.
[[nodiscard]] bool is_non_overlapping_and_dense(const Dims& sizes, const Dims& strides);
// Whether a tensor of four or five dimensions reads as images with their channels last, as
// TensorImpl's suggest_memory_format guesses from the strides (c10/core/MemoryFormat.h).
[[nodiscard]] bool is_like_channels_last(const Dims& sizes, const Dims& strides);
// Strides of such a tensor.
[[nodiscard]] Dims channels_last_strides(const Dims& sizes);
// Beyond int64 it stays at the largest int64.
[[nodiscard]] int64_t product(const Dims& sizes);

}  // namespace headroom::op
