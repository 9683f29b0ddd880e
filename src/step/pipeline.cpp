#include "step/pipeline.h"

#include <algorithm>
#include <limits>

#include "step/pipeline_v.h"

namespace headroom::step {

namespace {

// The chunk that the passes forward take in turn: a group of micro-batches, as many as stages, goes
// through all chunks before the next group.
int64_t chunk_of(const Pipeline& pipeline, int64_t pass) {
  return pipeline.chunks == 1 ? 0 : pass / pipeline.group_size() % pipeline.chunks;
}

// Passes backward go through the chunks from the last to the first.
int64_t last_first(const Pipeline& pipeline, int64_t pass) {
  return pipeline.chunks - 1 - chunk_of(pipeline, pass);
}

// Three groups of micro-batches hold the whole warm-up and a round of all chunks behind it: warm-up
// is less than (chunks + 1) * stages passes, of two mirrored chunks at most 2 * stages, and a round
// chunks * stages.
constexpr int64_t kGroups = 3;

// The most that are in flight at a time where no closed form is at hand.
int64_t most_at_a_time(const Pipeline& pipeline, int64_t micro_batches) {
  const int64_t enough = std::min(micro_batches, kGroups * pipeline.stages);
  int64_t now = 0;
  int64_t most = 0;
  for (const PipelinePass& pass : passes_of(pipeline, enough)) {
    if (pass.is_forward) most = std::max(most, ++now);
    if (!pass.is_forward && pass.part != BackwardPart::inputs) --now;
  }
  return most;
}

}  // namespace

int64_t warmup_passes(const Pipeline& pipeline) {
  if (pipeline.schedule == PipelineSchedule::gpipe) return std::numeric_limits<int64_t>::max();
  const int64_t behind = pipeline.stages - 1 - pipeline.stage;
  if (pipeline.chunks == 1) return behind;
  const int64_t each = splits_backward(pipeline.schedule) ? 1 : 2;
  return each * behind + (pipeline.chunks - 1) * pipeline.group_size();
}

std::vector<PipelinePass> passes_of(const Pipeline& pipeline, int64_t micro_batches) {
  if (is_mirrored(pipeline.schedule)) return mirrored_passes(pipeline, micro_batches);
  const int64_t total = micro_batches * pipeline.chunks;
  const int64_t warmup = std::min(warmup_passes(pipeline), total);
  const bool splits = splits_backward(pipeline.schedule);
  std::vector<PipelinePass> passes;
  passes.reserve(static_cast<size_t>((splits ? 3 : 2) * total));
  int64_t weights = 0;  // passes of those
  const auto add_weights = [&] {
    passes.push_back({false, last_first(pipeline, weights++), BackwardPart::weights});
  };
  for (int64_t i = 0; i < total + warmup; ++i) {
    if (i < total) passes.push_back({true, chunk_of(pipeline, i)});
    if (i < warmup) continue;
    const int64_t done = i - warmup;
    passes.push_back(
        {false, last_first(pipeline, done), splits ? BackwardPart::inputs : BackwardPart::whole});
    if (splits && done >= pipeline.stage) add_weights();
  }
  while (splits && weights < total) add_weights();
  return passes;
}

int64_t most_in_flight(const Pipeline& pipeline, int64_t micro_batches) {
  if (is_mirrored(pipeline.schedule)) return most_at_a_time(pipeline, micro_batches);
  const int64_t total = micro_batches * pipeline.chunks;
  const int64_t warmup = std::min(warmup_passes(pipeline), total);
  // Gradients of weights come as many passes later as there are stages before.
  const int64_t late = splits_backward(pipeline.schedule) ? pipeline.stage : 0;
  return std::min(warmup < total ? warmup + 1 + late : total, total);
}

int64_t representative_micro_batches(const Pipeline& pipeline, int64_t micro_batches,
                                     int64_t steady) {
  if (pipeline.schedule == PipelineSchedule::gpipe) return micro_batches;
  if (is_mirrored(pipeline.schedule)) return std::min(micro_batches, kGroups * pipeline.stages);
  const int64_t late = splits_backward(pipeline.schedule) ? pipeline.stage : 0;
  const int64_t enough = pipeline.chunks == 1 ? warmup_passes(pipeline) + late + steady
                                              : kGroups * pipeline.group_size();
  return std::min(micro_batches, enough);
}

}  // namespace headroom::step
