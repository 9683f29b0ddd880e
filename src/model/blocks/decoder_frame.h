// The frame around the layers of a causal decoder: embedding, masks, rotary tables, layers, final
// norm, head, loss.
//
// A family fills in a DecoderFrame and says what its layers are; build_decoder_frame() runs the
// forward function with the variables that transformers' own code keeps, in its order. The layers
// of most families are ready made (causal_decoder.h, decoder.h); the others write their own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/blocks/decoder_norm.h"
#include "model/blocks/loss.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// The tables that rotate queries and keys.
enum class RotaryTables : uint8_t {
  none,        // nothing is rotated
  doubled,     // cosines and sines of [dims / 2] angles, twice in a row
  wide,        // as doubled, in float32 whatever the model's type; what is turned is cast back
  from_host,   // as doubled, from frequencies that come from the host in every forward pass
  repeated,    // as doubled, each angle twice side by side
  half,        // once
  complex,     // one complex number an angle
  by_axis,     // as doubled, from three positions a token (Qwen's of text and images), a row a
               // sequence
  by_section,  // doubled of three positions a token (Qwen's of text and images before 3), each
               // angle taken from one of them by its place
};

enum class LayerMask : uint8_t {
  full,
  sliding,
  chunked,       // within chunks of the sequence, as long as the window says
  materialized,  // as full, and made even where the kernel would mask by itself
  none,          // of linear attention, where nothing is padded
};

// What is made once for all layers: looked up by the token ids, then put together with their
// embeddings.
struct ForLayersCalls {
  std::function<Var(GraphBuilder& g, const BuildOptions& options, const Var& ids)> look_up;
  std::function<Var(GraphBuilder& g, const BuildOptions& options, const Var& looked_up,
                    const Var& embedded)>
      put_together;
};

// A model around the language model, on text alone: the ids that are looked up in place of the
// input's, and what it makes besides of the embedding. `held` takes what its function holds.
struct AroundText {
  std::function<Var(GraphBuilder& g, const Var& ids, std::vector<Var>& held)> ids;
  std::function<void(GraphBuilder& g, const Var& embed_weight, const Var& embedded,
                     std::vector<Var>& held)>
      behind_embedding;
};

struct DecoderFrame {
  int64_t vocabulary = 0, hidden = 0, layers = 0;
  int64_t rotary_dims = 0;
  bool tied = false;

  // How the modules are called: "model.embed_tokens", "model.layers.0", "model.norm".
  std::string model_name = "model";
  std::string embedding_name = "embed_tokens";
  std::string norm_name = "norm";
  DecoderNorm norm = DecoderNorm::rms;
  bool head_bias = false;

  bool embedding_scale_buffer = false;  // Gemma: a buffer that the embedding is multiplied by
  std::optional<double> embedding_multiplier;  // Granite: a number
  bool multiplies_after_masks = false;
  double embedding_dropout = 0;
  bool keeps_embedding = true;  // a variable holds what it was before the dropout
  std::optional<double> logits_divisor;
  std::optional<double> logits_multiplier;
  bool softcap_logits = false;
  OwnLoss own_loss;

  RotaryTables tables = RotaryTables::doubled;
  bool tables_by_mask = false;  // Gemma 3: rotary frequencies of their own for each kind of layer
  std::vector<int64_t> rotary_dims_of_mask;  // with those, where they differ: of each of `masks`
  std::vector<LayerMask> masks{LayerMask::full};  // that the model makes, in this order
  std::vector<LayerMask> mask_of_layer;           // empty: the first one for all
  int64_t sliding_window = 0;
  bool masks_see_positions = true;  // the position ids are passed on to the mask's maker
  bool text_has_positions = true;   // of its own beside those of by_axis; else masks see none
  // The model around the language model makes the masks, before there are positions.
  bool masks_come_first = false;
  std::optional<AroundText> around;  // with it, what is for layers is put together behind the masks
  // Declares what stands before the language model and a step on text never reads.
  std::function<void(GraphBuilder&)> declare_before;
  std::function<void(GraphBuilder&)> declare_behind;
  // Declares, behind the layers, what LayerInputs::for_layers is made by (Gemma 4).
  std::function<ForLayersCalls(GraphBuilder&)> declare_for_layers;
  // Where layers share more than hidden states: lets go of it, once the model has run.
  std::function<void()> end_sharing;
};

// What a layer is called with besides the hidden states.
struct LayerInputs {
  const Var& cos;  // or the complex table
  const Var& sin;
  const Var& mask;
  const Var& positions;
  const Var& carried;  // what the layer before passed on besides its output (GLM-5: chosen keys)
  const Var& for_layers;
};

struct LayerOutputs {
  Var x;
  Var carried;

  LayerOutputs() = default;
  // Most layers pass nothing on.
  LayerOutputs(Var output) : x(std::move(output)) {}  // NOLINT(google-explicit-constructor)
  LayerOutputs(Var output, Var carry) : x(std::move(output)), carried(std::move(carry)) {}
};

using LayerCall = std::function<LayerOutputs(const Var& x, const LayerInputs& inputs)>;
// Declares the parameters of layer `index` under `name`.
using LayerFactory =
    std::function<LayerCall(GraphBuilder& g, int64_t index, const std::string& name)>;

Graph build_decoder_frame(const DecoderFrame& frame, const BuildOptions& options,
                          const LayerFactory& make_layer);

}  // namespace headroom::model
