// The frame around the layers of a causal decoder whose layers normalize before attention and before
// the feed-forward part: embedding, mask, rotary tables, layers, final norm, head, loss.
//
// A family says what its attention and its feed-forward part are; everything else is here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/blocks/attention.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// The tables that rotate queries and keys.
enum class RotaryTables : uint8_t {
  doubled,   // cosines and sines of [dims / 2] angles, twice in a row
  half,      // once
  complex,   // one complex number an angle
};

enum class MaskKind : uint8_t { full, sliding };

struct DecoderShape {
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t rotary_dims = 0;
  bool tied = false;
  RotaryTables tables = RotaryTables::doubled;
  bool wide_norm = false;              // see RmsNorm
  bool scaled = false;                 // Granite: factors on embeddings, branches and logits
  bool norms_first = false;            // declared before the feed-forward part
  std::vector<MaskKind> masks{MaskKind::full};  // that the model makes, in this order
  std::vector<MaskKind> mask_of_layer;          // empty: the first one for all
  int64_t sliding_window = 0;
  bool masks_see_positions = true;     // the position ids are passed on to the mask's maker
};

// What a layer is called with besides the hidden states.
struct LayerInputs {
  const Var& cos;  // or the complex table
  const Var& sin;
  const Var& mask;
  const Var& positions;
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
  std::string attention_name = "self_attn";
  std::string feed_forward_name = "mlp";
};

Graph build_decoder(const DecoderShape& shape, const BuildOptions& options, const LayerMaker& make);

}  // namespace headroom::model
