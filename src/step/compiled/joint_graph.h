// JointGraph: what a region of a model does in its forward and its backward pass, as kernels on
// values; what torch.compile sees of it before it decides what to keep and what to fuse.
//
// A value stands for one block of memory, however many views there are of it. Kernels are those of
// eager PyTorch: one for each operator of the forward pass, one for each autograd node of the
// backward pass, with what they read and write; views are none. In topological order, all of the
// forward pass first.
// Source: torch/_functorch/_aot_autograd/graph_capture.py, which traces a joint graph the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "operator/sink.h"
#include "operator/tensor.h"
#include "step/checkpoint.h"
#include "step/interpreter.h"

namespace headroom::step {

using JointValueId = uint32_t;

// How a tensor lies in its value.
struct JointTensor {
  JointValueId value = 0;
  op::Dims sizes;
  op::Dims strides;
  op::DType dtype = op::DType::f32;
};

// Of the whole block.
[[nodiscard]] inline int64_t bytes_of(const JointTensor& value) {
  return op::product(value.sizes) * op::element_size(value.dtype);
}

struct JointKernel {
  std::vector<JointValueId> reads;
  std::vector<int64_t> read_bytes;   // of each, what is read of its block
  std::vector<JointValueId> writes;  // values that are made here
  std::vector<JointValueId> kept;    // of those: what a selective checkpoint keeps
  std::vector<op::KernelWork> work;
  int64_t scratch_bytes = 0;  // held at most while it runs
  bool is_forward = true;
  // Elementwise operators, reductions and copies, of which a generated kernel does many at once;
  // matrix products and attention stay kernels of their own.
  bool is_fusible = true;
  // Of those, what the partitioner computes again for free.
  bool is_recomputable = true;
  // Of a library's kernel in float8: what it reads comes through a cast, which is generated code.
  bool casts_operands = false;
  bool is_random = false;
  uint32_t checkpoint = 0;  // the checkpoint that it runs in, in their order; 0: in none
  uint32_t module = 0;      // where in the model it is, for labels
};

struct JointGraph {
  std::vector<JointTensor> values;      // each as it was made
  std::vector<JointKernel> kernels;     // topological
  std::vector<model::ValueId> taken;    // what the region uses from outside, by argument
  std::vector<JointValueId> arguments;  // their values
  std::vector<bool> is_static;          // by argument: a parameter or a buffer, there in any case
  // What the region makes that is used behind it: its outputs, and casts that autocast has cached.
  std::vector<model::ValueId> made;
  std::vector<JointTensor> outputs;                           // by those
  std::vector<std::optional<JointValueId>> output_gradients;  // what backward is given for each
  std::vector<std::optional<JointTensor>> gradients;          // by argument: what backward makes
};

// The regions that run checkpointed, and what selective checkpoints keep.
struct RegionCheckpoints {
  std::vector<bool> regions;
  KeptOutputs kept;
};

// Runs the region once, on tensors like those in `frame`; it may be checkpointed, or have regions
// within it that are.
// Throws op::Impossible where an operator writes into what the region was given, or makes tensors
// of a size that depends on data.
[[nodiscard]] JointGraph trace_joint_graph(const model::Graph& graph, uint32_t region,
                                           const Frame& frame, const op::Environment& environment,
                                           const RegionCheckpoints& checkpoints);

}  // namespace headroom::step
