#include "model/blocks/mask.h"

#include <array>
#include <utility>

namespace headroom::model {

namespace {

constexpr op::Version kPackedSequenceDetection{4, 53};

// find_packed_sequence_indices: consecutive positions that differ by other than one.
void compare_neighbours(GraphBuilder& g, const BuildOptions& options, const Var& position_ids) {
  const Var positions = g.expand(position_ids, {options.batch, -1});
  const Var before_first = g.add(g.slice(positions, 1, 0, 1), -1.0);
  Var difference;
  {
    const std::array<Var, 2> parts{before_first, positions};
    const Var all = g.cat(parts, -1);
    difference =
        g.sub(g.slice(all, 1, 1, options.sequence + 1), g.slice(all, 1, 0, options.sequence));
  }
  const Var packed = g.cumsum(g.compare(difference), -1);
  const Var last_is_zero = g.compare(g.select(packed, 1, options.sequence - 1));
  g.amax(last_is_zero, 0, false);  // all()
}

// What a position may look at beside being no later than itself.
struct Limits {
  bool window = false;
  bool two_sided = false;  // the window is, and later positions are seen as well
  Var padding = {};        // booleans, [batch, sequence]
  Var chunk_start = {};    // where the first chunk of each sequence begins, [batch]
};

// Booleans, [batch, 1, sequence, keys]: true where both indices lie in the same chunk.
Var in_same_chunk(GraphBuilder& g, const BuildOptions& options, const Var& start,
                  const Var& queries, const Var& keys) {
  const auto chunk_of = [&](const Var& index) {
    // start[batch_index]: a copy of all of it.
    Var distance = g.sub(index, g.view(g.clone(start), {options.batch, 1, 1, 1}));
    return g.floor_divide(std::move(distance), 1.0);
  };
  Var key_chunk = chunk_of(keys);
  Var query_chunk = chunk_of(queries);
  return g.compare(std::move(key_chunk), std::move(query_chunk));
}

// Booleans, [batch, 1, sequence, keys].
Var allowed_positions(GraphBuilder& g, const BuildOptions& options, const Limits& limits) {
  const int64_t s = options.sequence;
  const int64_t key_count = s + (options.use_cache ? options.past : 0);
  const Var batch_index = g.arange(options.batch);
  const Var head_index = g.arange(1);
  const Var query_index = g.add(g.arange(s), 0.0);
  const Var key_index = g.add(g.arange(key_count), 0.0);
  const Var queries = g.view(query_index, {1, 1, s, 1});
  const Var keys = g.view(key_index, {1, 1, 1, key_count});
  Var allowed;
  if (!limits.window && !limits.two_sided && !limits.padding && !limits.chunk_start) {
    allowed = g.compare(keys, queries);
  } else {
    // and_masks: "all", joined with each rule in turn.
    allowed = g.full({}, DType::boolean);
    if (limits.two_sided) {
      // The distance, without its sign.
      allowed = g.compare(allowed, g.compare(g.neg(g.sub(queries, keys))));
      allowed = g.compare(allowed, g.compare(queries));  // no position is negative
      return g.expand(allowed, {options.batch, -1, s, key_count});
    }
    if (limits.chunk_start) {
      allowed = g.compare(allowed, in_same_chunk(g, options, limits.chunk_start, queries, keys));
    }
    if (limits.window) allowed = g.compare(allowed, g.compare(keys, g.add(queries, 0.0)));
    allowed = g.compare(allowed, g.compare(keys, queries));
    if (limits.padding) {
      // padding[batch_index, key_index]: a copy of all of it.
      allowed = g.compare(allowed, g.view(g.clone(limits.padding), {options.batch, 1, 1, s}));
    }
  }
  return g.expand(allowed, {options.batch, -1, s, key_count});
}

// What SDPA makes of booleans in each layer, a compiled model makes once for all of them.
Var for_sdpa(GraphBuilder& g, const BuildOptions& options, const Var& allowed, const Var& like) {
  return options.compiled ? additive_mask(g, allowed, like) : allowed;
}

// fast_all: a mask of booleans is read on the host.
void read_all(GraphBuilder& g, const Var& mask) { g.compare(g.sum(mask, {}, false)); }

}  // namespace

Var additive_mask(GraphBuilder& g, const Var& allowed, const Var& like) {
  const Var zero = g.full_like({}, like);
  const Var lowest = g.full_like({}, like);
  return g.where(allowed, zero, lowest);
}

void look_for_packed_sequences(GraphBuilder& g, const BuildOptions& options,
                               const Var& position_ids) {
  if (options.attention == Attention::flash_attention_2 || options.use_cache) return;
  if (position_ids && options.transformers >= kPackedSequenceDetection) {
    compare_neighbours(g, options, position_ids);
  }
}

void look_for_padding(GraphBuilder& g, const BuildOptions& options, const Var& ids) {
  const Var ends = g.index_select(ids, 1, g.full({2}, DType::i64));
  const Var is_padding = g.compare(ends);
  g.amax(g.view(is_padding, {2 * options.batch}), 0, false);  // any()
}

Var default_position_ids(GraphBuilder& g, const BuildOptions& options) {
  return g.unsqueeze(g.add(g.arange(options.sequence), 0.0), 0);
}

Var causal_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                const Var& position_ids) {
  if (options.attention == Attention::flash_attention_2) return {};
  look_for_packed_sequences(g, options, position_ids);
  if (options.attention == Attention::sdpa && !options.compiled) return {};
  return materialized_causal_mask(g, options, like);
}

Var materialized_causal_mask(GraphBuilder& g, const BuildOptions& options, const Var& like) {
  if (options.attention == Attention::flash_attention_2) return {};
  const Var allowed = allowed_positions(g, options, {});
  if (options.attention == Attention::sdpa) return for_sdpa(g, options, allowed, like);
  return additive_mask(g, allowed, like);
}

Var sliding_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                 const Var& position_ids, int64_t window) {
  if (options.attention == Attention::flash_attention_2) return {};
  look_for_packed_sequences(g, options, position_ids);
  if (options.attention == Attention::sdpa) {
    if (options.sequence < window && !options.compiled) return {};
    return for_sdpa(g, options, allowed_positions(g, options, {.window = true}), like);
  }
  const Var allowed = allowed_positions(g, options, {.window = true});
  return additive_mask(g, allowed, like);
}

Var chunked_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                 const Var& position_ids, int64_t chunk) {
  look_for_packed_sequences(g, options, position_ids);
  const Var start = g.full({options.batch}, DType::i64);
  if (options.attention == Attention::sdpa) {
    if (options.sequence < chunk && !options.compiled) return {};
    return for_sdpa(g, options, allowed_positions(g, options, {.chunk_start = start}), like);
  }
  const Var allowed = allowed_positions(g, options, {.chunk_start = start});
  return additive_mask(g, allowed, like);
}

Var two_sided_sliding_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                           int64_t window) {
  if (options.attention == Attention::flash_attention_2 || options.sequence < window) return {};
  const Var allowed = allowed_positions(g, options, {.two_sided = true});
  if (options.attention == Attention::sdpa) return for_sdpa(g, options, allowed, like);
  return additive_mask(g, allowed, like);
}

Var causal_mask_with_padding(GraphBuilder& g, const BuildOptions& options, const Var& like,
                             const Var& padding_numbers) {
  if (options.attention == Attention::flash_attention_2) return {};
  const Var padding = g.to(padding_numbers, DType::boolean);
  if (options.attention == Attention::sdpa && !options.compiled) {
    read_all(g, padding);
    return {};
  }
  const Var allowed = allowed_positions(g, options, {.padding = padding});
  if (options.attention == Attention::sdpa) return for_sdpa(g, options, allowed, like);
  return additive_mask(g, allowed, like);
}

}  // namespace headroom::model
