// A causal decoder whose layers normalize before attention and before the feed-forward part. A
// family says what these two are; the frame around the layers is decoder_frame.h's.
#pragma once

#include <functional>
#include <string>

#include "model/blocks/attention.h"
#include "model/blocks/decoder_frame.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct DecoderShape : DecoderFrame {
  bool scaled = false;           // Granite: factors on what a branch adds to the residual stream
  bool norms_first = false;      // declared before the feed-forward part
  bool keeps_attention = false;  // what it gives has a name of its own (Llama 4)
};

struct FeedForward {
  Var output;
  Var kept;  // a second result, which the caller's `_` keeps alive
};

using AttentionCall = std::function<Attended(const Var& x, const LayerInputs& inputs)>;
using FeedForwardCall = std::function<FeedForward(const Var& x)>;

// Declare the parameters of layer `index` under `name`.
struct LayerMaker {
  std::function<AttentionCall(GraphBuilder& g, int64_t index, const std::string& name)> attention;
  std::function<FeedForwardCall(GraphBuilder& g, int64_t index, const std::string& name)>
      feed_forward;
  // How the attention of layer `index` is called.
  std::function<std::string(int64_t index)> attention_name = [](int64_t) { return "self_attn"; };
  std::string feed_forward_name = "mlp";
};

Graph build_decoder(const DecoderShape& shape, const BuildOptions& options, const LayerMaker& make);

}  // namespace headroom::model
