// What reading prompts adds to the iterations of an engine.
//
//   L(rows + more) - L(rows) + sum of A(to) - A(from) over the prompts that are read in it
//
// L(r) is what all layers take of r rows, but for attention: of sequences that decode, a row each,
// and of the prompts' tokens beside them. While weights are read for few rows more of them cost
// little; once the products are bound by arithmetic each costs its share, and the experts that are
// awake already are not read again. A(p) is the attention of a prompt of p tokens. A prompt whose
// last token is computed has one row among the sequences', whose step it takes part in.
//
// Between entries of the tables both go along lines, beyond the last one along the last line;
// L(0) = A(0) = 0. Pure; thread-safe once made; a binary search a call.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::serving {

struct RowKnot {
  double rows = 1;
  double seconds = 0;
};

struct PromptKnot {
  double tokens = 1;
  double seconds = 0;
};

class PrefillLaw {
 public:
  PrefillLaw() = default;  // prompts take nothing
  // REQUIRES: both in increasing order, all finite, and not empty but for the second. What takes
  // less than fewer rows or tokens counts as they do.
  PrefillLaw(std::vector<RowKnot> rows, std::vector<PromptKnot> attention);

  [[nodiscard]] bool is_known() const { return !rows_.empty(); }
  // Of `more` rows of prompts beside so many.
  [[nodiscard]] double rows_seconds(int64_t rows, double more) const;
  // Of the tokens [from, to) of a prompt.
  [[nodiscard]] double attention_seconds(double from, double to) const;
  // Everything takes so many times as long. REQUIRES: factor > 0.
  [[nodiscard]] PrefillLaw scaled(double factor) const;

 private:
  std::vector<RowKnot> rows_;
  std::vector<PromptKnot> attention_;
};

// The prompts that have come since the last iteration, a Poisson process's.
struct PromptsMet {
  double mean = 0;    // so many, on average
  double tokens = 1;  // of each
  int64_t rows = 1;   // of the sequences that decode beside them
};

// What they take on average where they are read in pieces beside what decodes, of both together at
// most so many tokens in an iteration: more of them are spread over several.
[[nodiscard]] double mean_seconds_in_pieces(const PrefillLaw& law, const PromptsMet& met,
                                            int64_t most_tokens);
// Where they have iterations of their own, at most so many prompts in one, each of which takes
// `reading_seconds` beside what its rows and attention do.
[[nodiscard]] double mean_seconds_whole(const PrefillLaw& law, const PromptsMet& met,
                                        int64_t most_prompts, double reading_seconds);

}  // namespace headroom::serving
