#include "step/sharded_method.h"

namespace headroom::step {

ShardedMethod::ShardedMethod(const model::Graph& graph, const FsdpOptions& options,
                             op::Eager& eager, Recorder& recorder)
    : graph_(graph),
      options_(options),
      eager_(eager),
      recorder_(recorder),
      wrapped_(sharded_units(graph, options.wrap)),
      marks_(graph.instructions.size()) {
  for (const ShardedUnit& unit : wrapped_) {
    marks_[unit.begin].before = true;
    marks_[unit.end - 1].after = true;
  }
}

void ShardedMethod::before(uint32_t instruction, Frame& frame) {
  for (size_t i = wrapped_.size(); i-- > 0;) {
    if (wrapped_[i].begin == instruction) pre_forward(i, frame);
  }
}

void ShardedMethod::after(uint32_t instruction, Frame& frame) {
  for (size_t i = 0; i < wrapped_.size(); ++i) {
    if (wrapped_[i].end == instruction + 1) post_forward(i, frame);
  }
}

}  // namespace headroom::step
