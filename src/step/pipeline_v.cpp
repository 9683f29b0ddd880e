#include "step/pipeline_v.h"

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

namespace headroom::step {

namespace {

enum Chunk : int64_t { kDown = 0, kUp = 1 };

class Passes {
 public:
  explicit Passes(int64_t micro_batches) : micro_batches_(micro_batches) {}

  void forward(Chunk chunk) { add(forward_, chunk, {true, chunk}); }
  void whole(Chunk chunk) { add(backward_, chunk, {false, chunk, BackwardPart::whole}); }
  void inputs(Chunk chunk) {
    add(backward_, chunk, {false, chunk, BackwardPart::inputs});
    split_.push(chunk);
    ++waiting_[chunk];
  }
  // The weights' part of the oldest pass of this chunk that has none yet.
  void weights(Chunk chunk) {
    --waiting_[chunk];
    add(weights_, chunk, {false, chunk, BackwardPart::weights});
  }
  // Of the oldest of either, if there is one.
  void weights_of_oldest() {
    if (split_.empty()) return;
    weights(split_.front());
    split_.pop();
  }

  [[nodiscard]] int64_t forward_count(Chunk chunk) const { return forward_[chunk]; }
  [[nodiscard]] int64_t waiting(Chunk chunk) const { return waiting_[chunk]; }
  [[nodiscard]] std::vector<PipelinePass> take() { return std::move(passes_); }

 private:
  using Counts = std::array<int64_t, 2>;

  // Orders are made of more micro-batches than there may be; those that are not there are left out.
  void add(Counts& counts, Chunk chunk, const PipelinePass& pass) {
    if (counts[chunk]++ < micro_batches_) passes_.push_back(pass);
  }

  int64_t micro_batches_;
  Counts forward_{}, backward_{}, weights_{}, waiting_{};
  std::queue<Chunk> split_;
  std::vector<PipelinePass> passes_;
};

void repeat(int64_t times, const auto& pass) {
  for (int64_t i = 0; i < times; ++i) pass();
}

std::vector<PipelinePass> zero_bubble(int64_t stages, int64_t stage, int64_t micro_batches) {
  Passes passes(micro_batches);
  const int64_t all = std::max(2 * stages - 1, micro_batches);
  const auto there_and_back = [&](Chunk chunk) {
    passes.inputs(chunk);
    passes.weights(chunk);
  };
  repeat(2 * (stages - stage) - 1, [&] { passes.forward(kDown); });
  repeat(stage, [&] {
    passes.forward(kUp);
    passes.forward(kDown);
  });
  repeat(stages - stage, [&] {
    passes.forward(kUp);
    there_and_back(kUp);
  });
  while (passes.forward_count(kUp) < all) {
    if (passes.forward_count(kDown) < all) passes.forward(kDown);
    there_and_back(kDown);
    passes.forward(kUp);
    there_and_back(kUp);
  }
  repeat(stage, [&] {
    passes.inputs(kDown);
    passes.inputs(kUp);
  });
  repeat(stages - stage, [&] { there_and_back(kDown); });
  while (passes.waiting(kUp) > 0) passes.weights(kUp);
  while (passes.waiting(kDown) > 0) passes.weights(kDown);
  return passes.take();
}

std::vector<PipelinePass> dual(int64_t stages, int64_t stage, int64_t micro_batches) {
  Passes passes(micro_batches);
  const int64_t behind = stages - 1 - stage;
  const auto backward = [&](Chunk chunk, bool is_split) {
    if (is_split) {
      passes.inputs(chunk);
    } else {
      passes.whole(chunk);
    }
  };
  repeat(2 * behind, [&] { passes.forward(kDown); });
  repeat(stage + 1, [&] {
    passes.forward(kDown);
    passes.forward(kUp);
  });
  repeat(behind, [&] {
    passes.inputs(kUp);
    passes.weights_of_oldest();
    passes.forward(kUp);
  });
  repeat(micro_batches - 2 * stages + stage + 1, [&] {
    passes.forward(kDown);
    passes.whole(kUp);
    passes.forward(kUp);
    passes.whole(kDown);
  });
  repeat(behind, [&] {
    passes.whole(kUp);
    passes.forward(kUp);
    passes.whole(kDown);
  });
  // The last half of what is left is split: odd stages begin with the upper chunk, even ones with
  // the lower.
  const int64_t half = (stage + 1) / 2;
  const bool is_odd = stage % 2 == 1;
  for (int64_t i = 0; i <= stage; ++i) {
    backward(kUp, i > half || (i == half && is_odd));
    backward(kDown, i >= half);
  }
  repeat(behind, [&] {
    passes.weights_of_oldest();
    passes.inputs(kDown);
  });
  repeat(stage + 1, [&] { passes.weights_of_oldest(); });
  return passes.take();
}

}  // namespace

std::vector<PipelinePass> mirrored_passes(const Pipeline& pipeline, int64_t micro_batches) {
  return pipeline.schedule == PipelineSchedule::dual_pipe_v
             ? dual(pipeline.stages, pipeline.stage, micro_batches)
             : zero_bubble(pipeline.stages, pipeline.stage, micro_batches);
}

}  // namespace headroom::step
