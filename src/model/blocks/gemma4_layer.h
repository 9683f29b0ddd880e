// Gemma 4's layers: norms around both parts, heads of two sizes, keys and values that later layers
// take over, a mixture beside the feed-forward part, and an embedding of each token for each layer.
//
// Source: transformers/models/gemma4/modeling_gemma4.py (5.23).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "model/blocks/activation.h"
#include "model/blocks/decoder_frame.h"
#include "model/blocks/experts.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct Gemma4Shape : DecoderFrame {
  int64_t intermediate = 0;
  int64_t heads = 0;
  // Of layers with a window, and of those without.
  int64_t kv_heads = 0, full_kv_heads = 0;
  int64_t head_dim = 0, full_head_dim = 0;
  bool attention_bias = false;
  double attention_dropout = 0;
  bool keys_are_values = false;  // of layers without a window: one projection for both
  int64_t sharing_layers = 0;    // the last ones, which take keys and values from the ones before
  bool double_wide = false;      // their feed-forward parts
  Activation activation = Activation::gelu_tanh;
  int64_t layer_embedding = 0;  // columns of each token's embedding for a layer; 0: none
  int64_t layer_vocabulary = 0;
  ExpertsShape experts;  // none where there are 0

  [[nodiscard]] LayerMask kind_of(int64_t layer) const {
    return mask_of_layer[static_cast<size_t>(layer)];
  }
  [[nodiscard]] bool takes_over(int64_t layer) const { return layer >= layers - sharing_layers; }
  // The last of its kind that makes keys and values, where others take them over.
  [[nodiscard]] bool is_taken_from(int64_t layer) const;
};

// Keys and values by kind of layer.
using SharedStates = std::map<LayerMask, std::pair<Var, Var>>;

// Declares layer `index`; layers of one model have the same `shared`.
LayerCall gemma4_layer(GraphBuilder& g, const BuildOptions& options, const Gemma4Shape& shape,
                       int64_t index, const std::string& name,
                       const std::shared_ptr<SharedStates>& shared);

// Declares what the embeddings for layers are made by: [batch, sequence, layers, layer_embedding].
ForLayersCalls gemma4_layer_embeddings(GraphBuilder& g, const Gemma4Shape& shape);

}  // namespace headroom::model
