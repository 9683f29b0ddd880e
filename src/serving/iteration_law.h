// What one iteration of an engine with continuous batching takes.
//
//   seconds = D(n, k) + sum of C(to) - C(from) over the prompts that are read in it
//
// D is a decode step of n sequences whose caches hold k tokens: read off a table of steps at one
// mean context, each corrected by what a cached token more or less takes; sequences that are given
// their first tokens count in n. C(p) is what a prompt of p tokens takes beyond reading the
// weights, which D has already. An iteration that only reads prompts is D at no cached token.
// Between entries of the tables both go along lines, beyond the last one along the last line; C(0)
// = 0.
//
// Example: D(1) = 4.2 ms, D(64) = 13.3 ms, 161 prompt tokens 1.5 ms of which 0.9 read the weights:
// with 63 decoding and one prompt read, 13.3 + 0.6 = 13.9 ms.
//
// Pure; thread-safe once made; a binary search a call.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::serving {

struct DecodeKnot {
  double sequences = 1;
  double seconds = 0;                   // at the mean context
  double seconds_per_cached_token = 0;  // 0: the contexts are as where it was measured
};

struct PromptKnot {
  double tokens = 1;
  double seconds = 0;  // of this prompt, beyond reading the weights
};

class IterationLaw {
 public:
  // REQUIRES: decode is not empty, both in increasing order, a step's seconds positive, all finite.
  // Without prompts what they take is in the decode steps. A prompt that takes less than a shorter
  // one counts as that.
  IterationLaw(std::vector<DecodeKnot> decode, double mean_context,
               std::vector<PromptKnot> prompts = {});

  // Of an iteration with so many sequences, those that decode with so many tokens in their caches.
  // REQUIRES: sequences >= 1.
  [[nodiscard]] double decode_seconds(int64_t sequences, int64_t cached_tokens) const;
  // What the tokens [from, to) of a prompt add to an iteration.
  [[nodiscard]] double prompt_seconds(int64_t from, int64_t to) const;
  // Everything takes so many times as long. REQUIRES: factor > 0.
  [[nodiscard]] IterationLaw scaled(double factor) const;

 private:
  [[nodiscard]] double whole_prompt(int64_t tokens) const;
  std::vector<DecodeKnot> decode_;
  double mean_context_;
  std::vector<PromptKnot> prompts_;
};

}  // namespace headroom::serving
