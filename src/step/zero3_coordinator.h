// Zero3Coordinator: when ZeRO's third stage gathers a parameter and when it lets it go.
//
// Invariants:
//   1. The first pass through the model is recorded, by module, forward and backward in one: a
//      module gathers its own parameters as it begins, and lets them go as it ends.
//   2. From the second pass on the record says what comes next. A module that begins gathers what
//      it lacks, waits for what is on its way, and then begins to gather what comes next together,
//      `prefetch_elements` of it or one parameter more, as long as fewer than `most_live_elements`
//      are there. Parameters that are there already are passed over, and will be.
//   3. From then on a module that ends lets go what it has, but not what persists, what a gather
//      has passed over, nor what the record uses again within `reuse_elements`. What was decided
//      of a module at its place in the record is decided for good.
//   4. Where a checkpointed layer runs again, its frozen parameters stay until the module whose
//      backward asked for it (the layer itself: its hooks stand around the checkpoint) is done, or
//      what stands around that, if it is done already; trained ones are as in forward.
//   5. Who began in backward and did not end (the inputs need no gradient) ends with the pass.
//   6. A pass that parts from the record is run as none had been recorded, and the next one is.
// Modules without parameters look ahead like others. Where some are not seen (zero3_modules.h),
// DeepSpeed's gathers run further ahead and are cut otherwise; what is there at once is held by
// `most_live_elements` and one module's parameters in both. Cost: a module's end looks at the
// modules that follow within `reuse_elements`, once.
// Source: deepspeed/runtime/zero/partitioned_param_coordinator.py, version 0.19.8.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "step/zero3_parameters.h"

namespace headroom::step {

struct Zero3Limits {
  int64_t prefetch_elements = 0;   // stage3_prefetch_bucket_size
  int64_t most_live_elements = 0;  // stage3_max_live_parameters
  int64_t reuse_elements = 0;      // stage3_max_reuse_distance
};

class Zero3Coordinator {
 public:
  // By module, its parameters' indices, growing. `parameters` must outlive it.
  Zero3Coordinator(const Zero3Limits& limits, std::vector<std::vector<size_t>> modules,
                   Zero3Parameters& parameters);

  // A forward pass begins.
  void begin_pass();
  void begin_forward(size_t module, bool is_recomputed);
  void end_forward(size_t module);
  void begin_backward(size_t module);
  void end_backward(size_t module);
  // The backward pass is done.
  void end_pass();
  // Before the optimizer steps: what persists, too.
  void let_all_go();
  // Behind it.
  void gather_what_persists();

 private:
  enum class Status : uint8_t { away, on_its_way, there };
  enum class Record : uint8_t { none, being_made, made };
  struct State {
    Status status = Status::away;
    std::set<size_t> users;  // modules that run
    std::shared_ptr<Zero3Parameters::Gather> gather;
    int64_t seen_until = -1;  // the last step for which it was gathered or passed over
  };
  struct Use {
    size_t parameter = 0;
    int64_t step = 0;
  };

  void begin(size_t module, bool is_recomputed);
  void end(size_t module, bool is_backward);
  void check_against_record(size_t module);
  void begin_gather(std::vector<size_t> parameters);
  void await(size_t parameter);
  void look_ahead(size_t module);
  void let_go(size_t parameter);
  void let_go_what_is_on_its_way();
  [[nodiscard]] std::set<size_t> to_let_go(size_t module) const;

  const Zero3Limits limits_;
  const std::vector<std::vector<size_t>> modules_;
  Zero3Parameters& parameters_;
  std::vector<State> states_;
  Record record_ = Record::none;
  std::vector<size_t> order_;  // the record: modules, as they begin
  std::deque<Use> to_come_;    // of this pass, in the record's order
  std::map<std::pair<size_t, int64_t>, std::set<size_t>> decided_;  // by module and step
  int64_t step_ = 0;                                                // modules begun in this pass
  int64_t live_elements_ = 0;                 // gathered and not let go in this pass
  std::vector<size_t> in_backward_;           // modules that began there and did not end, in order
  std::vector<std::set<size_t>> kept_again_;  // by module: frozen, gathered by a second forward
};

}  // namespace headroom::step
