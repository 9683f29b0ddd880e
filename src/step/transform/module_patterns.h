// Modules that a graph holds as runs of plain operators, found again by their shape: RMS norms,
// rotary embeddings, gated feed-forward layers. For transformations that put fused kernels in their
// place.
//
// A pattern is a run of operators in the order in which transformers' code calls them, each fed by
// the ones before it, so another library's way of writing the same formula is not found.
// Cost: linear.
#pragma once

#include <vector>

#include "model/graph.h"

namespace headroom::step {

struct NormSite {
  uint32_t first = 0;  // operations [first, last]
  uint32_t last = 0;   // its output is the norm's
  model::ValueId input = 0;
  model::ValueId weight = 0;
};
[[nodiscard]] std::vector<NormSite> rms_norm_sites(const model::Graph& graph);

struct RotarySite {
  uint32_t first = 0;
  uint32_t last = 0;  // its output is the rotated key
  uint32_t last_of_query = 0;
  model::ValueId query = 0;
  model::ValueId key = 0;
  model::ValueId cos = 0;
  model::ValueId sin = 0;
};
// Of halves against each other, of whole heads or of their first part.
[[nodiscard]] std::vector<RotarySite> rotary_sites(const model::Graph& graph);

struct GatedSite {
  uint32_t activation = 0;  // operation: silu, gelu, ...
  uint32_t product = 0;     // operation: the product of activated gate and up
  model::ValueId gate = 0;
  model::ValueId up = 0;
};
[[nodiscard]] std::vector<GatedSite> gated_sites(const model::Graph& graph);

}  // namespace headroom::step
