// What one iteration of an engine with continuous batching takes.
//
//   seconds = D(n, k) + what the prompts that are read in it add (prefill_law.h)
//
// D is a decode step of n sequences whose caches hold k tokens: read off a table of steps at one
// mean context, each corrected by what a cached token more or less takes; sequences that are given
// their first tokens count in n. An iteration that only reads prompts is D at no cached token.
// Between entries of the table it goes along lines, beyond the last one along the last line.
//
// Example: D(1) = 4.2 ms, D(64) = 13.3 ms, the layers 4.0 ms of 63 rows and 4.6 of 224, a prompt of
// 161 tokens, whose attention takes 0.1 ms: with 63 decoding and it read, 13.3 + 0.6 + 0.1 = 14 ms.
//
// Pure; thread-safe once made; a binary search a call.
#pragma once

#include <cstdint>
#include <vector>

#include "serving/prefill_law.h"

namespace headroom::serving {

struct DecodeKnot {
  double sequences = 1;
  double seconds = 0;                   // at the mean context
  double seconds_per_cached_token = 0;  // 0: the contexts are as where it was measured
};

class IterationLaw {
 public:
  // REQUIRES: decode is not empty, in increasing order, a step's seconds positive, all finite.
  // Without prompts what they take is in the decode steps.
  IterationLaw(std::vector<DecodeKnot> decode, double mean_context, PrefillLaw prompts = {});

  // Of an iteration with so many sequences, those that decode with so many tokens in their caches.
  // REQUIRES: sequences >= 1.
  [[nodiscard]] double decode_seconds(int64_t sequences, int64_t cached_tokens) const;
  [[nodiscard]] const PrefillLaw& prompts() const { return prompts_; }

 private:
  std::vector<DecodeKnot> decode_;
  double mean_context_;
  PrefillLaw prompts_;
};

}  // namespace headroom::serving
