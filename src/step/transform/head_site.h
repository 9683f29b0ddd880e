// HeadSite: where a graph turns hidden states into a loss (lm_head and what follows), for
// transformations that put another loss in its place.
#pragma once

#include <set>

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

struct HeadSite {
  std::set<uint32_t> head;     // operations of the region lm_head, the product first
  std::set<uint32_t> loss;     // operations of the region loss; the last one makes graph.loss
  uint32_t cross_entropy = 0;  // operation, one of `loss`
  model::ValueId hidden = model::kNoValue;
  model::ValueId weight = model::kNoValue;
  model::ValueId bias = model::kNoValue;
  model::ValueId logits = model::kNoValue;  // what the head answers with
  model::ValueId labels = model::kNoValue;
  int64_t batch = 0, sequence = 0;  // of the labels
  int64_t width = 0, classes = 0;   // of the weight
};

// The Error is about a graph without a head of its own or without a loss, such as a traced one.
[[nodiscard]] Result<HeadSite> find_head(const model::Graph& graph);

}  // namespace headroom::step
