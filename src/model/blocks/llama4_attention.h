// Llama 4's attention: heads turn as complex numbers, or not at all, layer by layer; those that
// turn may be brought to length one, those that do not may be scaled by their position.
#pragma once

#include <string>

#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/linear.h"

namespace headroom::model {

struct Llama4AttentionShape {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool bias = false;
  double dropout = 0;
  bool rotates = true;
  bool normalizes = false;      // queries and keys, without a weight
  bool scales_queries = false;  // by their position
};

class Llama4Attention {
 public:
  // Declares NAME.{q_proj, k_proj, v_proj, o_proj}.
  Llama4Attention(GraphBuilder& g, const Llama4AttentionShape& shape, const std::string& name);
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const LayerInputs& inputs) const;

 private:
  Llama4AttentionShape s_;
  Linear q_, k_, v_, o_;
};

}  // namespace headroom::model
