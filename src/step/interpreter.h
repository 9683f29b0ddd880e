// The interpreter: runs a Graph's instructions on an Eager, dropping values where the graph says.
//
// A frame holds the values of one run of (a part of) the graph; recomputation in backward runs the
// same instructions again in a frame of its own. Cost: one table look-up an instruction.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/graph.h"
#include "operator/functional.h"

namespace headroom::step {

using Frame = std::vector<op::Tensor>;  // by ValueId; an undefined tensor where there is none

// Runs one operator. `inputs` may hold undefined tensors; returns its outputs.
void run_operation(op::Eager& eager, const model::Operation& operation,
                   std::span<const op::Tensor> inputs, std::vector<op::Tensor>& outputs);

// Whole instructions that are left out, and what stands in for the values that they would make.
struct SkippedInstructions {
  struct PassedOn {
    model::ValueId from = model::kNoValue;
    model::ValueId to = model::kNoValue;
    bool is_moved = false;  // the skipped instructions let go of `from`
  };
  uint32_t begin = 0;
  uint32_t end = 0;
  std::vector<PassedOn> passed_on;
};

// By instruction: whether somebody waits for it.
struct InstructionMark {
  bool before = false;
  bool after = false;
};
using InstructionMarks = std::vector<InstructionMark>;

class Interpreter {
 public:
  // What runs instead of the instructions of a region; false runs them as they are.
  using RegionHandler = std::function<bool(uint32_t region, Frame& frame)>;

  Interpreter(op::Eager& eager, const model::Graph& graph) : eager_(eager), graph_(graph) {}

  void set_region_handler(RegionHandler handler) { handler_ = std::move(handler); }
  // Called before each operation: whether it is the last. What is around it does not end then, and
  // nobody is called who would be behind it (a recomputation is cut off by an exception).
  void set_is_last(std::function<bool()> is_last) {
    is_last_ = std::move(is_last);
    is_cut_off_ = false;
  }
  // Who is called before and after the instructions that are marked; the marks must outlive the
  // runs.
  using Watcher = std::function<void(uint32_t instruction, bool is_after, Frame& frame)>;
  void set_watcher(const InstructionMarks& marks, Watcher watcher) {
    marks_ = &marks;
    watcher_ = std::move(watcher);
  }
  // Must outlive the runs; null: nothing is left out.
  void set_skipped(const SkippedInstructions* skipped) { skipped_ = skipped; }

  // Runs instructions [begin, end) in `frame`, which already holds the values from outside.
  void run(uint32_t begin, uint32_t end, Frame& frame);
  // The inside of a region, without its enter and leave.
  void run_region(uint32_t region, Frame& frame);

 private:
  op::Eager& eager_;
  const model::Graph& graph_;
  RegionHandler handler_;
  std::function<bool()> is_last_;
  bool is_cut_off_ = false;
  const SkippedInstructions* skipped_ = nullptr;
  const InstructionMarks* marks_ = nullptr;
  Watcher watcher_;
};

}  // namespace headroom::step
