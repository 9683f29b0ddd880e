// Steady steps, written by repeating the first one.
//
// Problem: a loop does the same again in every step, but that some things are made in the first one
// only. Running the model again says nothing new and costs as much as the first run.
// Invariants:
//   1. Forward and backward of a step depend on what is alive at its start. So where all that the
//      first step's passes made is gone at its end, workspaces of libraries excepted (they are kept
//      for good), a later step's passes do what the first step's did, less making the workspaces.
//      Gradients go
//      between the passes and the release of outputs. settle() checks just this; where it fails the
//      steps are run.
//   2. Repeated events are the recorded ones in their order, with new names for the blocks; names
//      go up in the order of allocation, as in a run.
//   3. The optimizer is never repeated: it makes its states in the first step. It runs on gradients
//      that stand in the repeated blocks.
// Linear in the events.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/eager.h"
#include "step/gradient_record.h"
#include "step/optimizer.h"
#include "step/recorder.h"

namespace headroom::step {

// A stretch of the trace, in its own terms.
struct Recorded {
  RecorderPosition begin;
  RecorderPosition end;
};

class StepRepeater {
 public:
  StepRepeater(StepTrace& trace, Recorder& recorder) : trace_(trace), recorder_(recorder) {}

  // To be called in the first step: when its passes begin and when they are done, and around the
  // release of its outputs.
  void begin_passes() { passes_.begin = recorder_.position(); }
  void end_passes(const std::vector<OptimizedParameter>& parameters) {
    passes_.end = recorder_.position();
    gradients_ = gradients_of(parameters);
  }
  void begin_release() { release_.begin = recorder_.position(); }
  void end_release() { release_.end = recorder_.position(); }

  // At the end of the first step: whether later ones may be written by repeating it.
  [[nodiscard]] bool settle();

  // Writes the passes again and hangs their gradients on the parameters.
  void repeat_passes(op::Eager& eager, const std::vector<OptimizedParameter>& parameters,
                     int iteration);
  void repeat_release(int iteration) { repeat(release_, iteration); }

 private:
  void repeat(const Recorded& stretch, int iteration);

  StepTrace& trace_;
  Recorder& recorder_;
  Recorded passes_;
  Recorded release_;
  GradientRecords gradients_;    // as the first step's backward left them
  std::vector<bool> is_kept_;    // of the blocks made in the passes: those that stay for good
  std::vector<uint32_t> names_;  // of the blocks made since passes_.begin, in the repetition
};

}  // namespace headroom::step
