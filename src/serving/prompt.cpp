#include "serving/prompt.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace headroom::serving {
namespace {

constexpr std::array<std::string_view, 64> kWords = {
    "the",  "of",   "and",   "to",    "in",    "is",    "that",  "for",  "it",   "as",   "was",
    "with", "be",   "by",    "on",    "not",   "he",    "his",   "but",  "at",   "are",  "this",
    "have", "from", "or",    "had",   "an",    "they",  "which", "one",  "you",  "were", "all",
    "her",  "she",  "there", "would", "their", "we",    "him",   "been", "has",  "when", "who",
    "will", "no",   "more",  "if",    "out",   "so",    "up",    "said", "what", "its",  "about",
    "than", "into", "them",  "can",   "only",  "other", "time",  "new",  "some"};

}  // namespace

uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

int64_t PromptLaw::words_for(int64_t tokens) const {
  const double words = (static_cast<double>(tokens) - base) / per_word;
  return std::llround(std::clamp(words, 1.0, static_cast<double>(kMostWords)));
}

Result<PromptLaw> fit_prompt_law(const PromptProbe& shorter, const PromptProbe& longer) {
  const auto words = static_cast<double>(longer.words - shorter.words);
  const auto tokens = static_cast<double>(longer.tokens - shorter.tokens);
  PromptLaw law;
  law.per_word = words > 0 ? tokens / words : 0;
  law.base =
      static_cast<double>(shorter.tokens) - law.per_word * static_cast<double>(shorter.words);
  constexpr double kLeast = 0.05;
  constexpr double kMost = 50;
  if (law.per_word >= kLeast && law.per_word <= kMost) return law;
  return Error{ErrorCode::bad_input,
               "the server's usage does not count prompts: " + std::to_string(shorter.tokens) +
                   " tokens for " + std::to_string(shorter.words) + " words, " +
                   std::to_string(longer.tokens) + " for " + std::to_string(longer.words),
               {},
               "lengths are checked by usage.prompt_tokens"};
}

std::string prompt_of(int64_t words, uint64_t seed, uint64_t request) {
  constexpr int kNumberWords = 11;  // of 6 bits: 64 in all
  constexpr int kWordsADraw = 10;
  std::string prompt;
  prompt.reserve(static_cast<size_t>(words) * 5);
  // Two bijections: other requests of one seed differ, and other seeds begin elsewhere.
  uint64_t bits = mixed(request ^ mixed(seed));
  uint64_t draws = bits;
  int left = kNumberWords;
  for (int64_t i = 0; i < words; ++i) {
    if (left == 0) {
      draws = mixed(draws);
      bits = draws;
      left = kWordsADraw;
    }
    if (i > 0) prompt += ' ';
    prompt += kWords[bits & 63];
    bits >>= 6;
    --left;
  }
  return prompt;
}

std::string prompt_sharing(const PromptLaw& law, int64_t tokens, double share, uint64_t seed,
                           uint64_t request) {
  const int64_t words = law.words_for(tokens);
  // What the server puts before each prompt is alike anyway.
  const double alike = (share * static_cast<double>(tokens) - law.base) / law.per_word;
  const auto shared =
      static_cast<int64_t>(std::clamp(std::round(alike), 0.0, static_cast<double>(words - 1)));
  if (shared == 0) return prompt_of(words, seed, request);
  // Another seed than any request has: of one text, as long as is needed.
  return prompt_of(shared, mixed(~seed), 0) + ' ' + prompt_of(words - shared, seed, request);
}

std::string prompt_of_hashes(std::span<const uint64_t> hashes, int64_t words_of_hash, int64_t words,
                             uint64_t seed, uint64_t request) {
  std::string prompt;
  const int64_t of_hash = std::max<int64_t>(1, words_of_hash);
  for (const uint64_t hash : hashes) {
    if (words <= of_hash) break;  // a request keeps a word of its own
    prompt += prompt_of(of_hash, mixed(seed), hash) + ' ';
    words -= of_hash;
  }
  return prompt + prompt_of(words, seed, request);
}

}  // namespace headroom::serving
