#include "model/blocks/mask.h"

#include <array>

namespace headroom::model {

namespace {

constexpr op::Version kPackedSequenceDetection{4, 53};

// find_packed_sequence_indices: consecutive positions that differ by other than one.
void look_for_packed_sequences(GraphBuilder& g, const BuildOptions& options,
                               const Var& position_ids) {
  const Var positions = g.expand(position_ids, {options.batch, -1});
  const Var before_first = g.add(g.slice(positions, 1, 0, 1), -1.0);
  Var difference;
  {
    const std::array<Var, 2> parts{before_first, positions};
    const Var all = g.cat(parts, -1);
    difference = g.sub(g.slice(all, 1, 1, options.sequence + 1), g.slice(all, 1, 0, options.sequence));
  }
  const Var packed = g.cumsum(g.compare(difference), -1);
  const Var last_is_zero = g.compare(g.select(packed, 1, options.sequence - 1));
  g.amax(last_is_zero, 0, false);  // all()
}

Var allowed_positions(GraphBuilder& g, const BuildOptions& options) {
  const int64_t s = options.sequence;
  const Var batch_index = g.arange(options.batch);
  const Var head_index = g.arange(1);
  const Var query_index = g.add(g.arange(s), 0.0);
  const Var key_index = g.add(g.arange(s), 0.0);
  const Var queries = g.view(query_index, {1, 1, s, 1});
  const Var keys = g.view(key_index, {1, 1, 1, s});
  const Var allowed = g.compare(keys, queries);
  return g.expand(allowed, {options.batch, -1, s, s});
}

Var allowed_in_window(GraphBuilder& g, const BuildOptions& options) {
  const int64_t s = options.sequence;
  const Var batch_index = g.arange(options.batch);
  const Var head_index = g.arange(1);
  const Var query_index = g.add(g.arange(s), 0.0);
  const Var key_index = g.add(g.arange(s), 0.0);
  const Var queries = g.view(query_index, {1, 1, s, 1});
  const Var keys = g.view(key_index, {1, 1, 1, s});
  // and_masks: "all", joined with the window, joined with the causal mask.
  Var allowed = g.full({}, DType::boolean);
  allowed = g.compare(allowed, g.compare(keys, g.add(queries, 0.0)));
  allowed = g.compare(allowed, g.compare(keys, queries));
  return g.expand(allowed, {options.batch, -1, s, s});
}

// The additive mask of eager attention.
Var additive(GraphBuilder& g, const Var& allowed, const Var& like) {
  const Var zero = g.full_like({}, like);
  const Var lowest = g.full_like({}, like);
  return g.where(allowed, zero, lowest);
}

// fast_all: a mask of booleans is read on the host.
void read_all(GraphBuilder& g, const Var& mask) { g.compare(g.sum(mask, {}, false)); }

Var allowed_and_unpadded(GraphBuilder& g, const BuildOptions& options, const Var& padding) {
  const int64_t s = options.sequence;
  const Var batch_index = g.arange(options.batch);
  const Var head_index = g.arange(1);
  const Var query_index = g.add(g.arange(s), 0.0);
  const Var key_index = g.add(g.arange(s), 0.0);
  const Var queries = g.view(query_index, {1, 1, s, 1});
  const Var keys = g.view(key_index, {1, 1, 1, s});
  Var allowed = g.full({}, DType::boolean);
  allowed = g.compare(allowed, g.compare(keys, queries));
  // padding[batch_index, key_index]: a copy of all of it.
  allowed = g.compare(allowed, g.view(g.clone(padding), {options.batch, 1, 1, s}));
  return g.expand(allowed, {options.batch, -1, s, s});
}

}  // namespace

Var default_position_ids(GraphBuilder& g, const BuildOptions& options) {
  return g.unsqueeze(g.add(g.arange(options.sequence), 0.0), 0);
}

Var causal_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                const Var& position_ids) {
  if (options.attention == Attention::flash_attention_2) return {};
  if (position_ids && options.transformers >= kPackedSequenceDetection && !options.use_cache) {
    look_for_packed_sequences(g, options, position_ids);
  }
  if (options.attention == Attention::sdpa) return {};
  const Var allowed = allowed_positions(g, options);
  return additive(g, allowed, like);
}

Var sliding_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                 const Var& position_ids, int64_t window) {
  if (options.attention == Attention::flash_attention_2) return {};
  if (position_ids && options.transformers >= kPackedSequenceDetection && !options.use_cache) {
    look_for_packed_sequences(g, options, position_ids);
  }
  if (options.attention == Attention::sdpa) {
    return options.sequence < window ? Var() : allowed_in_window(g, options);
  }
  const Var allowed = allowed_in_window(g, options);
  return additive(g, allowed, like);
}

Var causal_mask_with_padding(GraphBuilder& g, const BuildOptions& options, const Var& like,
                             const Var& padding_numbers) {
  if (options.attention == Attention::flash_attention_2) return {};
  const Var padding = g.to(padding_numbers, DType::boolean);
  if (options.attention == Attention::sdpa) {
    read_all(g, padding);
    return {};
  }
  const Var allowed = allowed_and_unpadded(g, options, padding);
  return additive(g, allowed, like);
}

}  // namespace headroom::model
