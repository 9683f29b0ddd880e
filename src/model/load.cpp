#include "model/load.h"

#include <algorithm>
#include <vector>

#include "base/suggest.h"

namespace headroom::model {

namespace {

const Family* family_named(std::string_view name) {
  const auto all = families();
  const auto found = std::ranges::find(all, name, &Family::model_type);
  return found == all.end() ? nullptr : &*found;
}

Error unknown_family(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Family& family : families()) known.push_back(family.model_type);
  const std::string_view nearest = nearest_word(name, known);
  std::string hint = "`headroom models` lists the families";
  if (!nearest.empty()) hint = "did you mean '" + std::string(nearest) + "'? " + hint;
  return Error{ErrorCode::usage, "unknown family '" + std::string(name.substr(0, 80)) + "'",
               "--assume", std::move(hint)};
}

}  // namespace

Result<const Family*> find_family(const text::JsonView& config, const Assumption& assume) {
  if (!assume.family.empty()) {
    if (const Family* family = family_named(assume.family)) return family;
    return unknown_family(assume.family);
  }
  HEADROOM_ASSIGN(const std::string name, config.get_string("model_type"));
  if (const Family* family = family_named(name)) return family;
  return config.error_at(
      "model_type", "unknown architecture '" + name + "'",
      "trace it with `headroom fit FILE.py:FUNCTION`, or pass --assume llama for "
      "an answer that is marked extrapolated");
}

Result<Graph> build_graph(const text::JsonView& config, const BuildOptions& options,
                          const Assumption& assume) {
  HEADROOM_ASSIGN(const Family* family, find_family(config, assume));
  HEADROOM_ASSIGN(Graph graph, family->build(config, options));
  if (!options.parts.empty() && graph.passed_on.empty()) {
    return Error{ErrorCode::unavailable,
                 "stages of a pipeline are not modelled of '" + std::string(family->model_type) +
                     "', whose layers pass on more than hidden states, or are not alone",
                 "--method", "llama, mistral, mixtral, qwen2, qwen3, gemma, phi3 and others are"};
  }
  return graph;
}

}  // namespace headroom::model
