#include "model/blocks/decoder_frame.h"

#include <algorithm>
#include <utility>

#include "model/blocks/head.h"
#include "model/blocks/mask.h"
#include "model/blocks/rotary.h"

namespace headroom::model {

namespace {

const char* name_of(LayerMask mask) {
  return mask == LayerMask::full ? "full_attention" : "sliding_attention";
}

Var mask_of(GraphBuilder& g, const BuildOptions& options, LayerMask kind, const Var& like,
            const Var& positions, int64_t window) {
  switch (kind) {
    case LayerMask::full:
      return causal_mask(g, options, like, positions);
    case LayerMask::sliding:
      return sliding_mask(g, options, like, positions, window);
    case LayerMask::chunked:
      return chunked_mask(g, options, like, positions, window);
    case LayerMask::materialized:
      look_for_packed_sequences(g, options, positions);
      return materialized_causal_mask(g, options, like);
    case LayerMask::none:
      break;
  }
  return {};
}

// The model without its head, or a part of it, in the order of its constructor.
class Decoder {
 public:
  Decoder(GraphBuilder& g, const DecoderFrame& frame, const ModelPart& part,
          const LayerFactory& make_layer)
      : f_(frame), part_(part) {
    if (part.is_first && f_.declare_before) f_.declare_before(g);
    if (part.is_first) declare_embedding(g);
    for (int64_t i = part.first_layer; i < part.first_layer + part.layers; ++i) {
      layers_.push_back(make_layer(g, i, path("layers.") + std::to_string(i)));
    }
    if (part.is_last) norm_.emplace(g, f_.norm, path(f_.norm_name), f_.hidden);
    if (f_.tables != RotaryTables::none) declare_frequencies(g);
    if (part.is_first && f_.declare_for_layers) for_layers_ = f_.declare_for_layers(g);
    if (part.is_last && f_.declare_behind) f_.declare_behind(g);
  }

  // Empty where the part is not the first.
  [[nodiscard]] const Var& embedding_weight() const { return embed_; }

  // `input`: of the first part the token ids, else hidden states.
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input) {
    std::vector<Var> held;
    Var ids = input;
    if (f_.around && part_.is_first) ids = f_.around->ids(g, input, held);
    Var embedded = part_.is_first ? embedding(g, ids) : input;
    if (!f_.multiplies_after_masks) embedded = multiplied(g, embedded);
    if (f_.around && part_.is_first) {
      f_.around->behind_embedding(g, embed_, embedded, held);
    }
    Var for_layers;
    if (for_layers_.look_up) for_layers = for_layers_.look_up(g, options, ids);
    if (!f_.around) put_together(g, options, embedded, for_layers);
    std::vector<Var> masks;
    if (f_.masks_come_first) masks = make_masks(g, options, embedded, Var());
    const Var all_positions = position_ids(g, options);
    const Var positions = positions_of_text(g, all_positions);
    if (!f_.masks_come_first) {
      masks = make_masks(g, options, embedded, f_.masks_see_positions ? positions : Var());
    }
    if (f_.around) {
      held.push_back(for_layers);
      put_together(g, options, embedded, for_layers);
    }
    if (f_.multiplies_after_masks) embedded = multiplied(g, embedded);
    Var x = embedded;
    if (part_.is_first) x = g.dropout(x, f_.embedding_dropout);
    if (!f_.keeps_embedding) embedded = x;
    std::vector<std::pair<Var, Var>> tables;
    for (const Var& frequencies : frequencies_) {
      tables.push_back(frequencies ? make_tables(g, options, frequencies, all_positions, x)
                                   : std::pair<Var, Var>());
    }
    if (tables.empty()) tables.emplace_back();
    Var carried;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const size_t kind = mask_index(i + static_cast<size_t>(part_.first_layer));
      const auto& [cos, sin] = tables[f_.tables_by_mask ? kind : 0];
      LayerOutputs out = layers_[i](x, {cos, sin, masks[kind], positions, carried, for_layers});
      x = std::move(out.x);
      carried = std::move(out.carried);
    }
    passes_on_more_ = static_cast<bool>(carried) && !part_.is_last;
    Var output = norm_ ? (*norm_)(g, x) : x;
    if (f_.end_sharing) f_.end_sharing();
    return output;
  }

  // Whether the next part would need more than hidden states.
  [[nodiscard]] bool passes_on_more() const { return passes_on_more_; }

 private:
  [[nodiscard]] std::string path(const std::string& part) const {
    return f_.model_name + "." + part;
  }
  void declare_embedding(GraphBuilder& g) {
    embed_ = g.parameter(path(f_.embedding_name) + ".weight", {f_.vocabulary, f_.hidden},
                         ParameterRole::embedding);
    if (!f_.embedding_scale_buffer) return;
    embed_scale_ = g.buffer(path(f_.embedding_name) + ".embed_scale", {}, std::nullopt, false);
  }
  // One set of frequencies, or one for each kind of layer that there is.
  void declare_frequencies(GraphBuilder& g) {
    for (size_t i = 0; i < f_.masks.size(); ++i) {
      const LayerMask mask = f_.masks[i];
      const Dims half{
          (f_.rotary_dims_of_mask.empty() ? f_.rotary_dims : f_.rotary_dims_of_mask[i]) / 2};
      if (f_.tables_by_mask ? !is_used(mask) : !frequencies_.empty()) {
        frequencies_.emplace_back();
        continue;
      }
      const std::string prefix =
          f_.tables_by_mask ? std::string(name_of(mask)) + "_" : std::string();
      frequencies_.push_back(
          g.buffer(path("rotary_emb." + prefix + "inv_freq"), half, DType::f32, false));
      g.buffer(path("rotary_emb." + prefix + "original_inv_freq"), half, DType::f32, false);
    }
  }
  Var embedding(GraphBuilder& g, const Var& ids) const {
    Var embedded = g.embedding(embed_, ids);
    if (!embed_scale_) return embedded;
    return g.mul(std::move(embedded), g.to_like(embed_scale_, embed_));
  }
  void put_together(GraphBuilder& g, const BuildOptions& options, const Var& embedded,
                    Var& for_layers) const {
    if (for_layers) for_layers = for_layers_.put_together(g, options, for_layers, embedded);
  }
  Var multiplied(GraphBuilder& g, const Var& embedded) const {
    const bool multiplies = f_.embedding_multiplier && part_.is_first;
    return multiplies ? g.mul(embedded, *f_.embedding_multiplier) : embedded;
  }
  std::vector<Var> make_masks(GraphBuilder& g, const BuildOptions& options, const Var& like,
                              const Var& positions) const {
    std::vector<Var> masks;
    for (const LayerMask kind : f_.masks) {
      masks.push_back(mask_of(g, options, kind, like, positions, f_.sliding_window));
    }
    return masks;
  }
  // [1, sequence], or the same for each axis of the tables, after the text's own.
  [[nodiscard]] Var position_ids(GraphBuilder& g, const BuildOptions& options) const {
    if (!has_axes()) return default_position_ids(g, options);
    const Var ids = g.add(g.arange(options.sequence), 0.0);
    return g.expand(g.view(ids, {1, 1, -1}), {f_.text_has_positions ? 4 : 3, options.batch, -1});
  }
  [[nodiscard]] bool has_axes() const {
    return f_.tables == RotaryTables::by_axis || f_.tables == RotaryTables::by_section;
  }
  // Of several axes those that the tables are made of.
  [[nodiscard]] Var positions_of_tables(GraphBuilder& g, const Var& positions) const {
    return has_axes() && f_.text_has_positions ? g.slice(positions, 0, 1, 4) : positions;
  }
  // What masks and layers are given.
  [[nodiscard]] Var positions_of_text(GraphBuilder& g, const Var& positions) const {
    if (!has_axes()) return positions;
    return f_.text_has_positions ? g.select(positions, 0, 0) : Var();
  }
  std::pair<Var, Var> make_tables(GraphBuilder& g, const BuildOptions& options,
                                  const Var& frequencies, const Var& positions,
                                  const Var& like) const {
    switch (f_.tables) {
      case RotaryTables::none:
        break;
      case RotaryTables::doubled:
        return rotary_tables(g, frequencies, positions, like);
      case RotaryTables::wide:
        return wide_rotary_tables(g, frequencies, positions);
      case RotaryTables::from_host:
        return rotary_tables_from_host(g, frequencies, positions, like);
      case RotaryTables::repeated:
        return repeated_rotary_tables(g, frequencies, positions, like, f_.rotary_dims);
      case RotaryTables::half:
        return half_rotary_tables(g, frequencies, positions, like);
      case RotaryTables::by_axis:
        return rotary_tables_by_axis(g, frequencies, positions_of_tables(g, positions), like);
      case RotaryTables::by_section:
        return rotary_tables_by_section(g, frequencies, positions_of_tables(g, positions), like);
      case RotaryTables::complex:
        return {complex_rotary_table(g, frequencies, positions, options.sequence, f_.rotary_dims),
                {}};
    }
    return {};
  }
  [[nodiscard]] size_t mask_index(size_t layer) const {
    if (f_.mask_of_layer.empty()) return 0;
    const auto found = std::ranges::find(f_.masks, f_.mask_of_layer[layer]);
    return static_cast<size_t>(found - f_.masks.begin());
  }
  [[nodiscard]] bool is_used(LayerMask mask) const {
    return std::ranges::find(f_.mask_of_layer, mask) != f_.mask_of_layer.end();
  }

  const DecoderFrame& f_;
  const ModelPart part_;
  Var embed_;
  Var embed_scale_;
  std::vector<LayerCall> layers_;
  ForLayersCalls for_layers_;
  std::optional<NormOfDecoder> norm_;
  std::vector<Var> frequencies_;
  bool passes_on_more_ = false;
};

Var head_logits(GraphBuilder& g, const DecoderFrame& frame, const Var& x, const Var& weight,
                const Var& bias) {
  RegionScope region(g, RegionKind::lm_head, "lm_head", {&x});
  Var logits = g.linear(x, weight, bias);
  if (frame.logits_divisor) logits = g.div(logits, *frame.logits_divisor);
  if (frame.logits_multiplier) logits = g.mul(logits, *frame.logits_multiplier);
  if (frame.softcap_logits) {
    logits = g.div(logits, 1.0);
    logits = g.tanh(logits);
    logits = g.mul(logits, 1.0);
  }
  region.leave({&logits});
  return logits;
}

Var input_of(GraphBuilder& g, const DecoderFrame& frame, const BuildOptions& options,
             const ModelPart& part) {
  if (part.is_first) return g.input("input_ids", {options.batch, options.sequence}, DType::i64);
  return g.received("hidden_states", {options.batch, options.sequence, frame.hidden});
}

// A part of the model from its input to its loss, or to what the next part gets; false where that
// would be more than hidden states.
bool build_part(GraphBuilder& g, const DecoderFrame& frame, const BuildOptions& options,
                const LayerFactory& make_layer, const ModelPart& part, bool is_last_chunk) {
  Decoder decoder(g, frame, part, make_layer);
  if (!part.is_last) {
    const Var input = input_of(g, frame, options, part);
    const Var x = decoder(g, options, input);
    is_last_chunk ? g.set_outputs(Var(), Var(), {&x}) : g.end_chunk(x);
    return !decoder.passes_on_more();
  }
  const LmHead head(g, options, "lm_head", frame.vocabulary, frame.hidden,
                    frame.tied ? decoder.embedding_weight() : Var(), frame.head_bias);
  const Var input = input_of(g, frame, options, part);
  Var labels;
  if (options.labels) labels = labels_input(g, options);
  Var x = decoder(g, options, input);
  if (options.classes) {
    head.finish(g, options, x, input, labels, frame.vocabulary, frame.own_loss);
    return true;
  }
  Var logits = head_logits(g, frame, x, head.weight, head.bias);
  // A stage's own forward() is left before its loss is taken.
  if (!options.parts.empty()) x = Var();
  Var loss;
  if (options.labels) {
    loss = causal_lm_loss(g, options, logits, labels, frame.vocabulary, frame.own_loss);
  }
  g.set_outputs(loss, logits, {});
  return true;
}

}  // namespace

Graph build_decoder_frame(const DecoderFrame& frame, const BuildOptions& options,
                          const LayerFactory& make_layer) {
  GraphBuilder g;
  if (options.parts.empty()) {
    build_part(g, frame, options, make_layer, {0, frame.layers, true, true}, true);
    return g.finish();
  }
  bool passes_hidden_alone = true;
  for (const ModelPart& part : options.parts) {
    const bool is_last = &part == &options.parts.back();
    passes_hidden_alone &= build_part(g, frame, options, make_layer, part, is_last);
  }
  Graph graph = g.finish();
  if (passes_hidden_alone) graph.passed_on = {options.batch, options.sequence, frame.hidden};
  return graph;
}

}  // namespace headroom::model
