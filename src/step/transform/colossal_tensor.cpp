#include "step/transform/colossal_tensor.h"

#include <set>
#include <string>

#include "step/transform/graph_rewriter.h"
#include "step/transform/linear_site.h"

namespace headroom::step {

using model::Attributes;
using model::Graph;
using model::GraphBuilder;
using model::Operation;
using model::Parameter;
using model::ParameterRole;
using model::ValueId;
using model::Var;
using op::OpKind;

namespace {

Error cannot_divide(const std::string& parameter, const char* why) {
  return {ErrorCode::usage, parameter + ": Colossal-AI's 1D tensor parallelism " + why, "--method",
          "gemini:N alone, or fsdp2:M,tp:N"};
}

Attributes with_ints(const model::Numbers& ints) {
  Attributes attributes;
  attributes.ints = ints;
  return attributes;
}

class ColossalWriter {
 public:
  ColossalWriter(const Graph& graph, int64_t ranks)
      : graph_(graph), ranks_(ranks), rewriter_(graph) {}

  Result<Graph> run() {
    for (const LinearSite& site : linear_sites(graph_)) {
      if (site.conv1d) {
        return cannot_divide(graph_.parameters[site.weight].name, "knows torch.nn.Linear alone");
      }
      products_.insert(site.product);
    }
    for (const Parameter& parameter : graph_.parameters) {
      if (parameter.role == ParameterRole::expert) {
        return cannot_divide(parameter.name, "is not modelled for experts");
      }
      if (!is_colossal_divided(parameter)) continue;
      if (parameter.shape[1] % ranks_ != 0) {
        return cannot_divide(parameter.name, "needs columns that the ranks divide");
      }
      columns_.emplace(parameter.value);
    }
    Graph graph = rewriter_.run([this](const Operation& operation) { return replace(operation); });
    for (Parameter& parameter : graph.parameters) {
      if (is_colossal_divided(parameter)) parameter.shape[1] /= ranks_;
    }
    return graph;
  }

 private:
  GraphRewriter::Outputs replace(const Operation& operation) {
    if (products_.contains(rewriter_.index_of(operation))) return product_of(operation);
    const bool looks_up = operation.kind == OpKind::embedding;
    if (looks_up && columns_.contains(operation.inputs[0])) return embedding_of(operation);
    return {};
  }

  // The bias is added once the sum is there.
  GraphRewriter::Outputs product_of(const Operation& operation) {
    GraphBuilder& g = rewriter_.builder();
    Var part = g.apply(OpKind::parallel_split, {rewriter_.value(operation.inputs[0])},
                       with_ints({ranks_}));
    Var answer = g.linear(std::move(part), rewriter_.value(operation.inputs[1]));
    answer = g.apply(OpKind::parallel_reduce, {std::move(answer)});
    if (operation.inputs.size() > 2 && operation.inputs[2] != model::kNoValue) {
      answer = g.add(std::move(answer), rewriter_.value(operation.inputs[2]));
    }
    return {std::move(answer)};
  }

  GraphRewriter::Outputs embedding_of(const Operation& operation) {
    GraphBuilder& g = rewriter_.builder();
    const int64_t columns = width_of(operation.inputs[0]);
    Var part = rewriter_.copy_of(operation);
    return {g.apply(OpKind::parallel_gather, {std::move(part)}, with_ints({ranks_, columns}))};
  }

  [[nodiscard]] int64_t width_of(ValueId weight) const {
    for (const Parameter& parameter : graph_.parameters) {
      if (parameter.value == weight) return parameter.shape[1];
    }
    return 0;
  }

  const Graph& graph_;
  const int64_t ranks_;
  GraphRewriter rewriter_;
  std::set<uint32_t> products_;  // operations
  std::set<ValueId> columns_;    // weights of which a rank has a part of the columns
};

}  // namespace

bool is_colossal_divided(const Parameter& parameter) {
  const ParameterRole role = parameter.role;
  const bool is_weight = role == ParameterRole::embedding || role == ParameterRole::lm_head ||
                         role == ParameterRole::linear;
  return is_weight && parameter.shape.size() == 2;
}

Result<Graph> apply_colossal_tensor(const Graph& graph, int64_t ranks) {
  return ColossalWriter(graph, ranks).run();
}

}  // namespace headroom::step
