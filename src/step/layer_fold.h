// LayerFold: a stretch of layers that are alike, of which a step needs to run four units only.
//
// Problem: a model is the same layer tens of times over, and running each says nothing new. What
// the passes of a step do with the skipped ones is written afterwards (layer_unfold.h).
// A unit is a layer, or as many neighbours as it takes until the pattern comes again (sliding and
// full attention by turns). The first and the last unit of the stretch run as they are, since they
// meet the rest of the model; of those between, the middle ones, the first and the last run and
// stand for all.
// Invariants of what fold_layers() answers with:
//   1. Middle units have the same instructions: the same operators with the same attributes, on
//      values that are the unit's own, or the unit's before in the same place, or the same for all,
//      or parameters and buffers of the same shape, type and trainability in the same place.
//   2. Nothing but a unit and its successor uses what a middle unit makes. (Whoever holds it to the
//      end may drop it there.)
//   3. The skipped instructions are whole units, at one level of regions.
// Linear in the graph.
// `kept` counts run units (0 to 3), `unit` all units of the stretch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/graph.h"
#include "step/interpreter.h"

namespace headroom::step {

struct LayerFold {
  static constexpr int8_t kNoUnit = -1;

  uint32_t units = 0;                  // of the stretch, boundary units among them; at least 5
  uint32_t modules_per_unit = 0;       // of the middle ones
  std::vector<int8_t> kept_of_module;  // 0 to 3, or kNoUnit outside
  SkippedInstructions skipped;
  // By middle unit: its parameters in the order of their first use.
  std::vector<std::vector<model::ValueId>> parameters;

  [[nodiscard]] uint32_t skipped_units() const { return units - 4; }
};

// The fold that skips most; nothing where layers differ, or are too few. `checkpointed` is by
// region.
[[nodiscard]] std::optional<LayerFold> fold_layers(const model::Graph& graph,
                                                   const std::vector<bool>& checkpointed);

}  // namespace headroom::step
