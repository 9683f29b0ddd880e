// Speculative decoding, as a scheduler feels it: a cheap drafter proposes k tokens for each
// sequence, one step of the model verifies them all, and as many as are accepted in a row are kept,
// and one more that the model itself made.
//
// With each token accepted with probability a if those before it were, a step gives
//
//   (1 - a^(k+1)) / (1 - a)   tokens on average (k + 1 for a = 1); k = 4, a = 0.7: 2.77
//
// and takes what a decode step of (1 + k) rows a sequence takes, whose attention reads each
// sequence's cache once, plus k times the share of a plain decode step that drafting a token takes.
// Source: Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
// Decoding", ICML 2023 (arXiv 2211.17192), equation 1 and theorem 3.8. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "serving/iteration_law.h"

namespace headroom::serving {

struct Speculation {
  static constexpr int64_t kMostDrafts = 64;
  int64_t draft_tokens = 0;  // k; 0: none
  double acceptance = 0;     // a
  double draft_share = 0;    // of a decode step of the same sequences, to draft one token for each
  [[nodiscard]] bool is_used() const { return draft_tokens > 0; }
  // Tokens of a step, on average.
  [[nodiscard]] double tokens_per_step() const;
  // How many of so many drafted tokens behind `written` ones of a request are accepted: drawn by
  // these numbers, so that the same question has the same answer.
  [[nodiscard]] int64_t accepted(size_t request, int64_t written, int64_t drafts) const;
};

// What is computed in an iteration beside prompts.
struct IterationWork {
  int64_t sequences = 1;  // those that are given their first tokens among them
  int64_t rows = 1;       // tokens that are computed for them: verified drafts, too
  int64_t cached = 0;     // tokens in the caches of those that decode
};
[[nodiscard]] double decode_seconds(const IterationLaw& law, const Speculation& speculation,
                                    const IterationWork& work);

}  // namespace headroom::serving
