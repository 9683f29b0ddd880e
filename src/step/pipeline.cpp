#include "step/pipeline.h"

#include <algorithm>

namespace headroom::step {

namespace {

// The chunk that the passes forward take in turn: a group of micro-batches, as many as stages, goes
// through all chunks before the next group.
int64_t chunk_of(const Pipeline& pipeline, int64_t pass) {
  return pipeline.chunks == 1 ? 0 : pass / pipeline.group_size() % pipeline.chunks;
}

}  // namespace

int64_t warmup_passes(const Pipeline& pipeline) {
  const int64_t behind = pipeline.stages - 1 - pipeline.stage;
  if (pipeline.chunks == 1) return behind;
  return 2 * behind + (pipeline.chunks - 1) * pipeline.group_size();
}

std::vector<PipelinePass> passes_of(const Pipeline& pipeline, int64_t micro_batches) {
  const int64_t total = micro_batches * pipeline.chunks;
  const int64_t warmup = std::min(warmup_passes(pipeline), total);
  std::vector<PipelinePass> passes;
  passes.reserve(static_cast<size_t>(2 * total));
  for (int64_t i = 0; i < total + warmup; ++i) {
    if (i < total) passes.push_back({true, chunk_of(pipeline, i)});
    if (i < warmup) continue;
    // Backward goes through the chunks from the last to the first.
    passes.push_back({false, pipeline.chunks - 1 - chunk_of(pipeline, i - warmup)});
  }
  return passes;
}

int64_t most_in_flight(const Pipeline& pipeline, int64_t micro_batches) {
  return std::min(warmup_passes(pipeline) + 1, micro_batches * pipeline.chunks);
}

int64_t representative_micro_batches(const Pipeline& pipeline, int64_t micro_batches,
                                     int64_t steady) {
  // Warm-up is less than (chunks + 1) * stages passes and a round of all chunks chunks * stages,
  // so that three groups hold both.
  constexpr int64_t kGroups = 3;
  const int64_t enough =
      pipeline.chunks == 1 ? warmup_passes(pipeline) + steady : kGroups * pipeline.group_size();
  return std::min(micro_batches, enough);
}

}  // namespace headroom::step
