// What of a pipeline's settings a move changes, as either engine says it: in a question, and in
// words for whoever runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "fit/question.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// By stage, and by the chunks of each.
using StageLayers = std::vector<std::vector<int64_t>>;

class PipelineSettings {
 public:
  virtual ~PipelineSettings() = default;

  // Of the scenario that they are of. The Error says why layers cannot be moved.
  [[nodiscard]] virtual Result<StageLayers> layers() const = 0;
  virtual void set_layers(const StageLayers& layers, FitQuestion& question) const = 0;
  // Whether stages have several chunks, and may do without.
  [[nodiscard]] virtual bool has_chunks() const = 0;
  virtual void set_one_chunk(FitQuestion& question) const = 0;

  // How each is brought about.
  [[nodiscard]] virtual std::string layers_how(const StageLayers& layers) const = 0;
  // `which` is "stage 0" or "stages 0, 1".
  [[nodiscard]] virtual std::string recomputation_how(const std::string& which) const = 0;
  [[nodiscard]] virtual std::string one_chunk_how() const = 0;
  // Of the question's own batch and accumulation.
  [[nodiscard]] virtual std::string micro_batch_how(const FitQuestion& question) const = 0;
};

// Those of the engine that the scenario is of, which must outlive them. REQUIRES: a pipeline.
[[nodiscard]] std::unique_ptr<PipelineSettings> pipeline_settings(const Scenario& scenario);

}  // namespace headroom::fit
