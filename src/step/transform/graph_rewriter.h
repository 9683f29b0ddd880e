// GraphRewriter: copies a graph's instructions and lets a transformation write other ones in the
// place of an operation, with a GraphBuilder, so that regions, values and drops come out right.
//
// A transformation gives a function that is called for each operation in order. It answers with
// nothing, and the operation is copied; or it writes what stands in its place and answers with one
// variable an output. Those variables stand for the operation's outputs from there on and die where
// they died. An empty variable in the answer says that there is no such value any more: nothing
// that is copied may use it. Inputs may be used as often as wanted; they live at least as long as
// the operation that is replaced. Values keep their numbers, so a transformation can look things up
// in the source.
//
// One use each; not thread-safe. Cost: linear in the number of instructions.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "model/builder.h"

namespace headroom::step {

class GraphRewriter {
 public:
  using Outputs = std::vector<model::Var>;
  using Replace = std::function<Outputs(const model::Operation& operation)>;

  // `source` must outlive the rewriter.
  explicit GraphRewriter(const model::Graph& source);

  [[nodiscard]] model::GraphBuilder& builder() { return builder_; }
  // The variable that now stands for a value of the source; empty for kNoValue.
  model::Var value(model::ValueId id);

  // The number of an operation of the source, as replacements are handed them.
  [[nodiscard]] uint32_t index_of(const model::Operation& operation) const {
    return static_cast<uint32_t>(&operation - source_.operations.data());
  }

  // The operation as it is, on what stands for its inputs now; for operations of one output.
  model::Var copy_of(const model::Operation& operation);
  // Drops `value` (of the source) now, where the source drops it right behind the operation that is
  // being replaced: what a module of several operations let go before it returned.
  void let_go(model::ValueId value);
  // Lets `var` live until the source drops `value`; gives its name here.
  model::ValueId keep_beside(model::ValueId value, model::Var var);
  // The answer for an operation that goes without a replacement.
  static Outputs gone(const model::Operation& operation);

  // A parameter that the transformation adds behind the one at index `after` (of the source) or
  // behind what was added there before. Its `value` is set here.
  model::Var add_parameter(uint32_t after, model::Parameter parameter);

  // Runs the copy. To be called once. `at_end` writes what follows the last instruction; variables
  // that a transformation kept until then must be let go there.
  model::Graph run(const Replace& replace, const std::function<void()>& at_end = {});
  // From `at_end`: in place of the source's `output` (logits, or another), the graph answers with
  // `value`.
  void set_output(model::ValueId output, model::ValueId value) { outputs_[output] = value; }

 private:
  struct Added {
    uint32_t after;
    model::Parameter parameter;
  };

  void copy_operation(const model::Operation& operation, const Replace& replace);
  void drop_beside(model::ValueId value);
  void rename(std::vector<model::ValueId>& values) const;
  [[nodiscard]] model::ValueId output(model::ValueId value) const;
  [[nodiscard]] model::ValueId renamed(model::ValueId value) const;
  [[nodiscard]] std::vector<model::Parameter> merged_parameters() const;
  [[nodiscard]] std::vector<model::GraphChunk> placed(std::vector<model::GraphChunk> chunks) const;

  const model::Graph& source_;
  model::GraphBuilder builder_;
  std::vector<model::ValueId> names_;  // by value of the source
  size_t at_ = 0;                      // instruction of the source that is being copied
  std::vector<Added> added_;
  std::map<model::ValueId, model::ValueId> outputs_;              // by value of the source
  std::map<model::ValueId, std::vector<model::ValueId>> beside_;  // by value of the source
};

}  // namespace headroom::step
