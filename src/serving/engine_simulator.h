// An engine with continuous batching, iteration by iteration: who waits, who runs, who is
// preempted.
//
// Time goes on by a law of iterations (iteration_law.h); the scheduler is vLLM's, which others
// share in its main lines:
//
//   chunked prefill     (v1/core/sched/scheduler.py, 0.10) each iteration has a budget of tokens.
//                       Running sequences have theirs first, in order of admission: one token if
//                       they decode, what is left of their prompts otherwise. Then those that wait
//                       are admitted, first come first served, as far as budget, limit and cache
//                       go.
//   without             (core/scheduler.py, 0.6.3) while somebody can be admitted, an iteration
//   reads
//                       whole prompts, within the budget or one alone, and nobody decodes.
//   cache               blocks as sequences grow. Where one is missing, the last that was admitted
//   is
//                       preempted: it gives its blocks back, waits before all others, and what it
//                       had is read again as a prompt.
//   speculation         a sequence that decodes is given room for its drafted tokens, too, which
//                       count in the budget; what was accepted is there at the end of the
//                       iteration, all at once (speculation.h).
//   prefixes            prompts whose leading hashes are cached are read from there on
//                       (kv_blocks.h); the last token of a prompt is always computed.
//
// A request that comes within an iteration waits for its end; a token is there at the end of the
// iteration that computes it. Network and detokenization take nothing.
//
// Invariants
//   1. Tokens of an iteration <= budget, sequences <= limit, blocks <= the cache's.
//   2. An iteration computes one token at least, so the simulation ends; the one that was admitted
//      first is preempted by nobody.
//   3. The same input gives the same output.
//
// Some 30 ns a token (docs/measurements/2026-11-22-open-load), memory linear in the requests.
// Thread-safe (it shares nothing).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serving/iteration_law.h"
#include "serving/latency_histogram.h"
#include "serving/speculation.h"

namespace headroom::serving {

struct EngineLimits {
  int64_t max_num_seqs = 256;
  int64_t max_num_batched_tokens = 2048;
  bool has_chunked_prefill = true;
  int64_t block_tokens = 16;
  int64_t kv_blocks = int64_t{1} << 40;  // so many that there is no limit
  Speculation speculation = {};
};

struct ArrivingRequest {
  double seconds = 0;  // when it comes
  int64_t input_tokens = 1;
  int64_t output_tokens = 1;
};

// Requests in order of arrival, and the hashes of their prompts.
struct Arrivals {
  std::vector<ArrivingRequest> requests;
  std::vector<uint64_t> hashes;    // of all prompts, one after another
  std::vector<size_t> first_hash;  // of each request, and the end; empty: no hashes
  int64_t hash_tokens = 512;       // that a hash stands for; whole blocks
  [[nodiscard]] std::span<const uint64_t> hashes_of(size_t request) const;
};

struct SimulationOptions {
  double stretch = 1;             // of the times of arrival
  int64_t closed_loop = 0;        // so many at all times in place of those times; 0: open
  double late_gap_seconds = 1e9;  // what counts as late between two tokens
  // The requests whose figures are wanted: what comes before them is warm-up, and it ends when they
  // have ended. To the end: all.
  size_t from = 0;
  size_t to = static_cast<size_t>(-1);
};

struct RequestOutcome {
  double arrived = 0;
  double first_token = 0;
  double ended = 0;
  int64_t output_tokens = 0;
  int64_t gaps = 0;  // between its tokens: those of one iteration come together
  int64_t late_gaps = 0;
  bool is_refused = false;  // longer than the whole cache
  bool is_ended = false;
};

struct SimulatedRun {
  std::vector<RequestOutcome> requests;  // as they came; those behind `to` may not have ended
  LatencyHistogram gaps;                 // between tokens, of the wanted requests
  double seconds = 0;
  double in_system_seconds = 0;  // requests that wait or run, integrated over time
  double in_batch_seconds = 0;   // sequences in iterations, the same
  int64_t iterations = 0;
  int64_t preemptions = 0;
  int64_t decodes = 0;         // of one sequence in one iteration
  int64_t decoded_tokens = 0;  // that they gave
  int64_t prompt_tokens_computed = 0;
  int64_t prompt_tokens_cached = 0;
  int64_t most_blocks = 0;  // of sequences at once
  int64_t blocks_at_end = 0;
};

// REQUIRES: arrivals in order, all lengths positive; limits positive; hash_tokens a multiple of
// block_tokens; closed_loop >= 0; stretch > 0.
[[nodiscard]] SimulatedRun simulate(const Arrivals& arrivals, const IterationLaw& law,
                                    const EngineLimits& limits,
                                    const SimulationOptions& options = {});

}  // namespace headroom::serving
