// One operator of a trace, as the Operation and the Recording that replay it.
//
// Internal to the reading of traces (traced_graph.cpp), which reads operators in their order: what
// an operator may refer to is what those before it made. Linear in the operator's own text.
#pragma once

#include <string>
#include <vector>

#include "model/traced_values.h"

namespace headroom::model {

struct TracedOperation {
  Operation operation;
  Recording recording;
  std::string module;
  std::vector<ValueId> listed;        // the trace's outputs
  std::vector<int32_t> output_index;  // of each listed one among the operation's
};

// Positions of ids in one operator's lists, forgotten all at once for the next operator.
class Positions {
 public:
  explicit Positions(size_t count) : rounds_(count), positions_(count) {}
  void clear() { ++round_; }
  [[nodiscard]] int32_t find(size_t id) const {
    return rounds_[id] == round_ ? positions_[id] : kNowhere;
  }
  // The first position counts.
  void add(size_t id, size_t position) {
    if (rounds_[id] == round_) return;
    rounds_[id] = round_;
    positions_[id] = static_cast<int32_t>(position);
  }

 private:
  uint32_t round_ = 1;
  std::vector<uint32_t> rounds_;
  std::vector<int32_t> positions_;
};

class OperationReader {
 public:
  // Both must outlive it. A value that nobody made becomes a buffer of `graph`.
  OperationReader(TracedValues& values, Graph& graph)
      : values_(values),
        graph_(graph),
        inputs_(values.size()),
        outputs_(values.size()),
        input_storages_(values.storage_count()),
        output_storages_(values.storage_count()) {}

  // Errors: bad_input, with the place in the file.
  Result<TracedOperation> read(const text::JsonView& view);

 private:
  Result<void> collect(const text::JsonView& place, const text::Json& json, int depth);
  Result<void> read_outputs(const text::JsonView& view);
  Result<void> read_node(const text::JsonView& view);
  Result<void> read_edges(const text::JsonView& view);
  Result<void> read_node_outputs(const text::JsonView& view);
  Result<void> read_save(const text::JsonView& save);
  Result<void> read_backward(const text::JsonView& view);
  Result<void> read_blocks(const text::JsonView& backward);
  Result<void> read_gradient(const text::JsonView& view);
  Result<RecordedGradient> read_new_gradient(const text::JsonView& view);
  Result<const RecordedTensor*> read_passed_on(const text::JsonView& view,
                                               RecordedGradient& gradient);
  RecordedOutput describe_output(ValueId id);
  int32_t input_index(ValueId id);

  TracedValues& values_;
  Graph& graph_;
  // Of the operator that is being read.
  TracedOperation current_;
  Positions inputs_;           // by value
  Positions outputs_;          // by value
  Positions input_storages_;   // by storage
  Positions output_storages_;  // by storage
  bool wants_gradient_ = false;
  std::vector<bool> freed_;  // by block of its backward
};

}  // namespace headroom::model
