#include "step/pipeline_actions.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace headroom::step {

namespace {

constexpr size_t kMostWhole = 3;  // max_active_stages

using Kind = PipelineActionKind;

bool contains(const std::vector<uint32_t>& chunks, uint32_t chunk) {
  return std::ranges::find(chunks, chunk) != chunks.end();
}

// In the order in which they come.
std::vector<uint32_t> next_chunks(std::span<const PipelinePass> passes, size_t chunks) {
  std::vector<uint32_t> next;
  for (const PipelinePass& pass : passes) {
    const auto chunk = static_cast<uint32_t>(pass.chunk);
    if (contains(next, chunk)) continue;
    next.push_back(chunk);
    if (next.size() == std::min(kMostWhole, chunks)) break;
  }
  return next;
}

class Actions {
 public:
  Actions(const Pipeline& pipeline, int64_t micro_batches)
      : passes_(passes_of(pipeline, micro_batches)),
        chunks_(static_cast<size_t>(pipeline.chunks)),
        whole_(chunks_),
        left_(chunks_, micro_batches) {}

  std::vector<PipelineAction> all() {
    for (size_t i = 0; i < passes_.size(); ++i) {
      gather_and_let_go(next_chunks(std::span(passes_).subspan(i), chunks_));
      add_pass(passes_[i]);
    }
    gather_and_let_go({});
    return std::move(actions_);
  }

 private:
  void gather_and_let_go(const std::vector<uint32_t>& next) {
    for (uint32_t chunk = 0; chunk < chunks_; ++chunk) {
      if (whole_[chunk] && !contains(next, chunk)) set(chunk, false);
    }
    for (const uint32_t chunk : next) {
      if (!whole_[chunk]) set(chunk, true);
    }
  }

  void set(uint32_t chunk, bool is_whole) {
    whole_[chunk] = is_whole;
    actions_.push_back({is_whole ? Kind::gather : Kind::let_go, chunk, {}});
  }

  void add_pass(const PipelinePass& pass) {
    const auto chunk = static_cast<uint32_t>(pass.chunk);
    actions_.push_back({Kind::pass, chunk, pass});
    if (pass.is_forward || pass.part == BackwardPart::inputs) return;
    if (--left_[chunk] == 0) actions_.push_back({Kind::reduce, chunk, {}});
  }

  const std::vector<PipelinePass> passes_;
  const size_t chunks_;
  std::vector<bool> whole_;
  std::vector<int64_t> left_;  // passes that make gradients of weights, by chunk
  std::vector<PipelineAction> actions_;
};

}  // namespace

std::vector<PipelineAction> actions_of(const Pipeline& pipeline, int64_t micro_batches) {
  if (!pipeline.is_single()) return Actions(pipeline, micro_batches).all();
  std::vector<PipelineAction> actions;
  for (const PipelinePass& pass : passes_of(pipeline, micro_batches)) {
    actions.push_back({Kind::pass, static_cast<uint32_t>(pass.chunk), pass});
  }
  return actions;
}

}  // namespace headroom::step
