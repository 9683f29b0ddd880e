// Recording: how one traced operator treats memory, forward and backward, as a trace saw it.
//
// An Operation that carries one is replayed and not computed: its outputs have the recorded
// layouts, its node saves the recorded tensors, and its backward makes and lets go the recorded
// blocks. So an operator without a formula of ours is exact too, in the shapes that were traced.
// Read-only once made, shared by the copies of an Operation. Sizes are checked by whoever makes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/dtype.h"
#include "operator/tensor.h"

namespace headroom::model {

struct RecordedTensor {
  op::Dims sizes;
  op::Dims strides;
  op::DType dtype = op::DType::f32;
};

inline constexpr int32_t kNowhere = -1;

struct RecordedOutput {
  enum class Kind : uint8_t { fresh, view_of_input, view_of_output, same_as_input };
  Kind kind = Kind::fresh;
  int32_t source = kNowhere;  // of a view: which input or earlier output
  int64_t bytes = 0;          // of a fresh storage
  RecordedTensor tensor;
};

struct RecordedSave {
  int32_t input = kNowhere;  // one of the two
  int32_t output = kNowhere;
  bool detached = false;  // written to in place later, when it belongs to another node
};

// A block that the backward takes (free is kNowhere), or the end of one that it took.
struct RecordedBlock {
  int64_t bytes = 0;
  int32_t free = kNowhere;
};

struct RecordedGradient {
  enum class Kind : uint8_t { none, same_as_gradient, view_of_gradient, block, same_as_result };
  Kind kind = Kind::none;
  int32_t source = kNowhere;  // gradient, block or result, by number
  bool is_view = false;       // holds a base, so the engine may not add into it
  RecordedTensor tensor;
};

struct Recording {
  std::string name;  // "aten.convolution.default"
  double flops = 0;
  bool through_lt = false;  // a product with a bias, see Eager::use_blas
  std::vector<RecordedOutput> outputs;
  bool differentiable = false;        // autograd made a node
  std::vector<int32_t> edges;         // by the node's inputs: whose gradient it is, by input
  std::vector<int32_t> node_outputs;  // by the node's outputs: which output
  std::vector<RecordedSave> saves;
  std::vector<RecordedBlock> blocks;        // what the backward takes and gives back, in order
  std::vector<RecordedGradient> gradients;  // by edge
};

}  // namespace headroom::model
