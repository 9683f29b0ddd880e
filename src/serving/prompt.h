// Prompts of a length that is asked for, no two of a run beginning alike.
//
// A server counts tokens in its own way, so two probes tell how many it makes of so many words:
// tokens = base + per_word * words, `base` being its template. The words are common English ones,
// drawn by a seed. The first eleven spell the request's number mixed with the seed (6 bits each),
// so that no cache of prefixes helps, neither within a run nor from an earlier one of another seed;
// unless a share of each prompt is to be alike.
// Pure; thread-safe; some ten nanoseconds a word.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace headroom::serving {

struct PromptLaw {
  double base = 0;
  double per_word = 1;
  // Words for `tokens`, 1 at least and kMostWords at most.
  [[nodiscard]] int64_t words_for(int64_t tokens) const;
};

inline constexpr int64_t kMostWords = 2'000'000;

struct PromptProbe {
  int64_t words = 0;
  int64_t tokens = 0;  // as the server's usage has them
};

// An Error where more words are not more tokens.
Result<PromptLaw> fit_prompt_law(const PromptProbe& shorter, const PromptProbe& longer);

[[nodiscard]] std::string prompt_of(int64_t words, uint64_t seed, uint64_t request);

// The same, of so many tokens, of which this share begins alike in all prompts of the seed: a cache
// of prefixes finds them once a prompt that is as long was read. A prompt keeps a word of its own.
[[nodiscard]] std::string prompt_sharing(const PromptLaw& law, int64_t tokens, double share,
                                         uint64_t seed, uint64_t request);

// The same, where the first words are told by hashes: prompts begin alike as far as their hashes
// are alike, with so many words each, and differ from there on. Of another seed they differ.
[[nodiscard]] std::string prompt_of_hashes(std::span<const uint64_t> hashes, int64_t words_of_hash,
                                           int64_t words, uint64_t seed, uint64_t request);

// Eight bytes of Steele, Lea and Flood's SplitMix64 (OOPSLA 2014): a bijection of its argument.
[[nodiscard]] uint64_t mixed(uint64_t value);

}  // namespace headroom::serving
