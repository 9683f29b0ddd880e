// Rotary position embeddings as transformers computes and applies them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// (cos, sin) in the type of `like`, each [1, sequence, dims]; inverse_frequencies is [dims / 2] in
// float32, position_ids [1, sequence].
std::pair<Var, Var> rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                  const Var& position_ids, const Var& like);

// Phi-3.5-MoE: the same from frequencies that are computed on the host each time; besides, the
// length of the sequence is found on the device.
std::pair<Var, Var> rotary_tables_from_host(GraphBuilder& g, const Var& inverse_frequencies,
                                            const Var& position_ids, const Var& like);

// OLMo, ERNIE 4.5: the same, left in float32.
std::pair<Var, Var> wide_rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                       const Var& position_ids);

// Cohere: every angle twice, side by side.
std::pair<Var, Var> repeated_rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                           const Var& position_ids, const Var& like, int64_t dims);

// gpt-oss: the same for [1, sequence, dims / 2], each angle once.
std::pair<Var, Var> half_rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                       const Var& position_ids, const Var& like);

// Qwen3.5: [batch, sequence, dims] from position_ids [3, batch, sequence]; every angle is taken
// from one of the three.
std::pair<Var, Var> rotary_tables_by_axis(GraphBuilder& g, const Var& inverse_frequencies,
                                          const Var& position_ids, const Var& like);

// Qwen2-VL: the same, of sections of the angles that are put together anew.
std::pair<Var, Var> rotary_tables_by_section(GraphBuilder& g, const Var& inverse_frequencies,
                                             const Var& position_ids, const Var& like);

// DeepSeek-V2: complex [1, sequence, dims / 2].
Var complex_rotary_table(GraphBuilder& g, const Var& inverse_frequencies, const Var& position_ids,
                         int64_t sequence, int64_t dims);

// x * cos + rotate_half(x) * sin, for query and key [batch, heads, sequence, dims], or with heads
// in dimension `heads_dim`.
std::pair<Var, Var> apply_rotary(GraphBuilder& g, const Var& query, const Var& key, const Var& cos,
                                 const Var& sin, int64_t dims, int heads_dim = 1);

// The same for one of them alone (Gemma 4).
Var apply_rotary_to_one(GraphBuilder& g, const Var& x, const Var& cos, const Var& sin, int64_t dims,
                        int heads_dim);

// The same for the first `dims` of a head of `head`; the rest is appended as it is.
std::pair<Var, Var> apply_partial_rotary(GraphBuilder& g, const Var& query, const Var& key,
                                         const Var& cos, const Var& sin, int64_t dims,
                                         int64_t head);

// The same, where both are turned before either is joined with its rest (GPT-NeoX, GLM-4's
// mixture). `held` takes the parts where the caller's variables keep them.
std::pair<Var, Var> rotate_then_join(GraphBuilder& g, const Var& query, const Var& key,
                                     const Var& cos, const Var& sin, int64_t dims, int64_t head,
                                     std::vector<Var>* held = nullptr);

// GLM's: neighbours turn together instead of halves; cos and sin are [1, sequence, dims], of which
// the first half counts.
std::pair<Var, Var> apply_partial_rotary_to_pairs(GraphBuilder& g, const BuildOptions& options,
                                                  const Var& query, const Var& key, const Var& cos,
                                                  const Var& sin, int64_t dims, int64_t head);

// How whole heads turn by neighbours: x * cos + (-odd, even) * sin.
struct PairRotation {
  enum class Widening : uint8_t {
    none,         // Helium
    by_factor,    // ERNIE 4.5: x and what it is turned to are widened to float32 one by one
    of_operands,  // Cohere: query and key are widened before anything else
  };
  // Tables hold each angle twice in a row, as of halves, and their first half is repeated; else
  // (Cohere) each is there twice, side by side.
  bool repeats_tables = true;
  Widening widening = Widening::none;
};

// query and key [batch, heads, sequence, dims], returned in their own type.
std::pair<Var, Var> apply_rotary_to_neighbours(GraphBuilder& g, const BuildOptions& options,
                                               const Var& query, const Var& key, const Var& cos,
                                               const Var& sin, int64_t dims,
                                               const PairRotation& rotation);

// DeepSeek's: neighbours turn together, computed on every other column and joined half after half.
// Heads stand in dimension `heads_dim` of query and key.
std::pair<Var, Var> rotate_interleaved(GraphBuilder& g, const Var& query, const Var& key,
                                       const Var& cos, const Var& sin, int64_t dims,
                                       int heads_dim = 1);

// GPT-J's: neighbouring elements turn together. x is [batch, sequence, heads, dims], its `sizes`;
// sin and cos [1, sequence, dims / 2], each repeated for its pair.
Var apply_rotary_to_pairs(GraphBuilder& g, const Var& x, const Var& sin, const Var& cos,
                          const std::vector<int64_t>& sizes);

}  // namespace headroom::model
