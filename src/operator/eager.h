// Eager: the symbolic PyTorch that operators run on. It makes storages, decides output layouts as
// TensorIterator does, reports kernels, and hangs autograd nodes on outputs.
//
// It knows no operator; those are functions in functional.h that take an Eager first. One Eager
// serves one step; not thread-safe. Cost: some tens of nanoseconds an operator.
//
// Source: ATen/TensorIterator.cpp and torch/csrc/autograd (PyTorch 2.x).
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "operator/attention_backend.h"
#include "operator/impossible.h"
#include "operator/node.h"
#include "operator/sink.h"
#include "operator/tensor.h"

namespace headroom::op {

// What happens to tensors as they are saved for backward
// (torch.autograd.graph.saved_tensors_hooks). Non-reentrant checkpointing is one.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  // Takes over slot `slot` of `node`, whose tensor is not kept; false keeps the tensor.
  virtual bool pack(Node& node, size_t slot, const Tensor& tensor) = 0;
};

// Keeps what chosen operators make while a region runs, and hands it out where the region runs
// again (torch.utils.checkpoint.create_selective_checkpoint_contexts). Operators that can be chosen
// ask: matrix products and attention kernels.
class OutputCache {
 public:
  virtual ~OutputCache() = default;
  // What the operator made the first time goes into `outputs`; false: it has to run.
  virtual bool take(OpKind kind, std::initializer_list<Tensor*> outputs) = 0;
  // It ran and made these.
  virtual void made(OpKind kind, std::initializer_list<const Tensor*> outputs) = 0;
};

// The versions whose behaviour is modelled. Comparable as {major, minor}.
struct Version {
  int major = 0;
  int minor = 0;
  auto operator<=>(const Version&) const = default;
};

// What the libraries for matrix products take from the caching allocator: one block for each
// thread's handle, kept from its first product on. Which sizes hold where: device/blas_workspace.h.
struct BlasWorkspaces {
  // What products that go through the "Lt" library (a linear layer with a bias) use.
  enum class Lt : uint8_t { temporary, persistent, shared };
  int64_t main_bytes = 0;  // 0: not modelled
  int64_t lt_bytes = 0;
  Lt lt = Lt::temporary;
};

// What the operators' choices depend on besides their arguments.
struct Environment {
  Version torch{2, 13};
  int compute_capability = 80;  // 10 * major + minor; 0 for a CPU
  int multiprocessors = 108;
  // Temporaries inside CUDA kernels (scratch.h). Fake tensors show none, so the oracle is compared
  // without them.
  bool kernel_scratch = true;
  BlasWorkspaces blas;
  // torch.nn.attention.sdpa_kernel around the step: one kernel alone is allowed.
  std::optional<AttentionBackend> attention{};
};

// PyTorch runs forward and backward on threads of their own, and each thread has its own handles.
enum class ThreadKind : uint8_t { main, autograd };

// No tensor may be larger; beyond it operators throw Impossible (impossible.h).
inline constexpr int64_t kTensorBytesMax = int64_t{1} << 56;

class Eager {
 public:
  Eager(Sink& sink, Environment environment) : sink_(sink), environment_(environment) {}
  Eager(const Eager&) = delete;
  Eager& operator=(const Eager&) = delete;

  [[nodiscard]] const Environment& environment() const { return environment_; }

  // --- tensors -------------------------------------------------------------------------------
  Tensor empty(const Dims& sizes, DType dtype);
  Tensor empty_strided(const Dims& sizes, const Dims& strides, DType dtype);
  // Same sizes; strides kept where the source is dense, else TensorIterator's permutation.
  Tensor empty_like(const Tensor& source, DType dtype);
  // A view: same storage, other sizes and strides. It holds its base, so the engine never adds into
  // a gradient that is a view (as_view in VariableTypeUtils.h).
  Tensor alias(const Tensor& source, const Dims& sizes, const Dims& strides);
  // A tensor in a block that the sink already handed out.
  Tensor adopt(uint32_t buffer, const Dims& sizes, const Dims& strides, DType dtype);
  // A view that autograd does not know.
  Tensor detach(const Tensor& source);
  // storage.resize_(0) and back: the block goes, and all tensors that share the storage stay.
  void release_storage(const Tensor& tensor);
  void restore_storage(const Tensor& tensor);

  // A fresh output for an elementwise operator over these inputs (broadcast sizes, the layout that
  // TensorIterator computes).
  Tensor elementwise_output(std::initializer_list<const Tensor*> inputs, DType dtype);

  // --- kernels -------------------------------------------------------------------------------
  void kernel(OpKind kind, double flops, int64_t bytes_read, int64_t bytes_written) {
    if (!muted_) sink_.on_kernel({kind, flops, bytes_read, bytes_written});
  }
  void kernel(const KernelWork& work) {
    if (!muted_) sink_.on_kernel(work);
  }
  // Of a matrix product or attention, whose units depend on the type.
  void kernel(OpKind kind, double flops, int64_t bytes_read, int64_t bytes_written, DType type) {
    if (muted_) return;
    sink_.on_kernel(
        {kind, flops, bytes_read, bytes_written, static_cast<uint8_t>(element_size(type))});
  }
  // Among the ranks of a tensor-parallel group; what follows waits for it.
  void collective(OpKind kind, int64_t bytes_in, int64_t bytes_out) {
    if (!muted_) sink_.on_collective({kind, 0, bytes_in, bytes_out});
  }
  // To one neighbour on a ring, while the other one's comes; what needs that waits for it.
  void send(int64_t bytes) {
    if (!muted_) sink_.on_collective({OpKind::send_receive, 0, bytes, bytes});
  }
  void await_sent() {
    if (!muted_) sink_.on_await_sent();
  }
  // While muted, operators hang their nodes and save their tensors, but take no memory and launch
  // nothing: an operator that is interrupted after it saved its inputs.
  void set_muted(bool muted) { muted_ = muted; }
  [[nodiscard]] bool is_muted() const { return muted_; }
  // The sink's name for the block made last; names grow.
  [[nodiscard]] uint32_t newest_buffer() const { return newest_buffer_; }
  // Scratch that a kernel takes for as long as the handle lives; undefined where scratch is not
  // modelled or nothing is needed.
  [[nodiscard]] Tensor scratch(int64_t bytes);
  // A matrix product runs: the thread's first one makes the library's workspace.
  void use_blas(bool through_lt = false);
  // By thread, the sink's names of the workspaces that are held; kNoBuffer where there is none.
  struct HeldWorkspaces {
    uint32_t main[2] = {kNoBuffer, kNoBuffer};
    uint32_t lt[2] = {kNoBuffer, kNoBuffer};
  };
  [[nodiscard]] HeldWorkspaces held_workspaces() const;
  // Takes over blocks that the sink already handed out, in place of what is held.
  void hold_workspaces(const HeldWorkspaces& held);
  void set_thread(ThreadKind thread) { thread_ = thread; }
  [[nodiscard]] ThreadKind thread() const { return thread_; }

  // --- autograd ------------------------------------------------------------------------------
  [[nodiscard]] bool grad_enabled() const { return grad_enabled_; }
  void set_grad_enabled(bool enabled) { grad_enabled_ = enabled; }

  // The node for an operator that ran on `inputs` and made `outputs`, or null when grad mode is off
  // or no input requires a gradient. Undefined inputs are legal.
  Node* history(const char* name, std::initializer_list<const Tensor*> inputs,
                std::initializer_list<Tensor*> outputs);
  Node* history(const char* name, std::span<const Tensor> inputs, std::span<Tensor> outputs);
  // To be called once a node's tensors are all in `saved`: reports them, runs the hooks.
  void finish(Node& node);
  // A tensor is kept for backward outside of any node's `saved`.
  void note_saved(const Tensor& tensor) { sink_.on_saved(tensor->storage->buffer); }
  // The edge along which a gradient of this tensor travels; empty when it needs none.
  Edge gradient_edge(const Tensor& tensor);

  void set_output_cache(OutputCache* cache) { output_cache_ = cache; }
  // For operators that a cache may choose; an interrupted one asks for nothing.
  bool recall(OpKind kind, std::initializer_list<Tensor*> outputs) {
    return output_cache_ != nullptr && !muted_ && output_cache_->take(kind, outputs);
  }
  void made(OpKind kind, std::initializer_list<const Tensor*> outputs) {
    if (output_cache_ != nullptr && !muted_) output_cache_->made(kind, outputs);
  }

  void set_hooks(SavedTensorHooks* hooks) { hooks_ = hooks; }
  [[nodiscard]] SavedTensorHooks* hooks() const { return hooks_; }

  void set_module(uint32_t module) {
    module_ = module;
    sink_.on_module(module);
  }
  [[nodiscard]] uint32_t module() const { return module_; }

 private:
  template <typename Inputs, typename Outputs>
  Node* make_history(const char* name, Inputs& inputs, Outputs& outputs);
  Ref<Storage> allocate(int64_t bytes);
  Ref<Storage> allocate_workspace(int64_t bytes);
  Ref<Storage> adopt_storage(uint32_t buffer, int64_t bytes);

  Sink& sink_;
  Environment environment_;
  SavedTensorHooks* hooks_ = nullptr;
  OutputCache* output_cache_ = nullptr;
  uint64_t sequence_ = 0;
  uint32_t module_ = 0;
  uint32_t newest_buffer_ = 0;
  bool grad_enabled_ = true;
  bool muted_ = false;
  ThreadKind thread_ = ThreadKind::main;
  // By thread; they are never released.
  Ref<Storage> blas_main_[2];
  Ref<Storage> blas_lt_[2];
};

// Switches grad mode for a scope.
class GradMode {
 public:
  GradMode(Eager& eager, bool enabled) : eager_(eager), before_(eager.grad_enabled()) {
    eager.set_grad_enabled(enabled);
  }
  ~GradMode() { eager_.set_grad_enabled(before_); }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  Eager& eager_;
  bool before_;
};

}  // namespace headroom::op
