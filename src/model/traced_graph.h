// From a traced module (headroom.graph/1, docs/formats/graph.md) to a Graph: what `headroom fit
// train.py:build` runs.
//
// The file is input like any other: every number is bounded and every id checked, so that whatever
// comes out can be run. Shapes are those of the trace, so batch and sequence are too. Pure and
// thread-safe; linear in the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/graph.h"
#include "text/json.h"

namespace headroom::model {

struct TracedGraph {
  Graph graph;
  std::string source;                // "train.py:build"
  std::optional<std::string> torch;  // versions that traced it: "2.13.0+cpu"
  std::optional<std::string> transformers;
  std::optional<int64_t> batch;  // where the function takes them: what it was given
  std::optional<int64_t> sequence;
  std::vector<std::string> unknown_operators;  // by name, each once, in order of appearance
  std::vector<std::string> data_answers;       // what the trace took for granted about values
};

// Errors: bad_input, with the place in the file.
Result<TracedGraph> read_traced_graph(const text::JsonView& json);

// How large a trace may be.
inline constexpr text::JsonLimits kTraceLimits{.bytes = Bytes(512 * kMiB), .values = 40'000'000};

}  // namespace headroom::model
