// How large Colossal-AI's Gemini makes the chunks that parameters lie in.
//
// Problem: parameters are put one behind another into chunks of one size; one that does not fit
// into what is left of a chunk begins the next, and what was left is wasted. Which size wastes
// least? Way: parameters of more than the mean and three standard deviations are left out (they get
// chunks of their own), and sizes from the largest of the rest on, or from a least one, are tried
// at a fixed distance; the first of the least waste wins, and is made a multiple of the ranks that
// share a chunk. Parameters of a group that come to less than the least size together lie in one
// chunk of just them, which every rank keeps whole; so do those that nobody shares.
// Source: colossalai/zero/gemini/chunk/search_utils.py of the authors of LLMem (arXiv 2404.10933);
// upstream divides, too, what one rank alone has. Cost: sizes tried times parameters.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::step {

// Parameters that the same number of ranks hold.
struct ChunkGroup {
  int64_t ranks = 1;
  std::vector<int64_t> sizes;  // elements, in the model's order
};

struct ChunkSize {
  int64_t elements = 0;  // of a chunk
  bool stays_whole = false;
};

// Defaults of GeminiPlugin. What it calls bytes is held against numbers of elements.
struct ChunkSearch {
  int64_t least_elements = int64_t{32} << 20;  // min_chunk_size_mb
  int64_t range = int64_t{32} << 20;           // search_range_mb
  int64_t distance = 1024;                     // where no hidden_dim is given
};

// One a group.
[[nodiscard]] std::vector<ChunkSize> chunk_sizes(const std::vector<ChunkGroup>& groups,
                                                 const ChunkSearch& search = {});

}  // namespace headroom::step
