// ShardedMethod: what both of FSDP's versions have in common: the units, and when the hooks around
// a unit's forward run. Outer units come before inner ones on the way in, and behind them on the
// way out.
#pragma once

#include <cstdint>
#include <vector>

#include "step/parallel_method.h"
#include "step/recorder.h"
#include "step/sharded_units.h"

namespace headroom::step {

// Of the blocks of gathering and of reducing.
inline constexpr uint32_t kComputeStream = 0;
inline constexpr uint32_t kGatherStream = 1;
inline constexpr uint32_t kReduceStream = 2;
inline constexpr uint32_t kAllReduceStream = 3;  // among replicas

class ShardedMethod : public ParallelMethod {
 public:
  // All must outlive the method.
  ShardedMethod(const model::Graph& graph, const FsdpOptions& options, op::Eager& eager,
                Recorder& recorder);

  [[nodiscard]] const InstructionMarks* marks() const final { return &marks_; }
  void before(uint32_t instruction, Frame& frame) final;
  void after(uint32_t instruction, Frame& frame) final;

 protected:
  // By index into wrapped().
  virtual void pre_forward(size_t unit, Frame& frame) = 0;
  virtual void post_forward(size_t unit, Frame& frame) = 0;

  // The root's is the last.
  [[nodiscard]] const std::vector<ShardedUnit>& wrapped() const { return wrapped_; }
  [[nodiscard]] op::DType type_of(const model::Parameter& parameter) const {
    return parameter.dtype.value_or(options_.weights);
  }

  const model::Graph& graph_;
  const FsdpOptions options_;
  op::Eager& eager_;
  Recorder& recorder_;

 private:
  std::vector<ShardedUnit> wrapped_;
  InstructionMarks marks_;
};

}  // namespace headroom::step
