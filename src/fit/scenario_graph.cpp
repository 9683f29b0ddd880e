#include "fit/scenario_graph.h"

#include "step/transform/lora.h"

namespace headroom::fit {

namespace {

Result<model::Graph> with_adapters(const Scenario& s, const model::Graph& graph) {
  step::LoraOptions options;
  options.rank = s.question.lora_rank;
  options.targets = s.question.lora_targets;
  HEADROOM_ASSIGN(const auto model_type, s.model->view().optional_string("model_type"));
  options.model_type = model_type.value_or("");
  options.adapter_dtype = dtype_of(s.question.lora_dtype);
  options.require_input_gradients = s.train.checkpointing != step::CheckpointPolicy::none &&
                                    s.train.checkpoint_kind == step::CheckpointKind::reentrant;
  return step::apply_lora(graph, options);
}

}  // namespace

Result<model::Graph> graph_of(const Scenario& s) {
  HEADROOM_ASSIGN(model::Graph graph, model::build_graph(s.model->view(), s.build, s.assume));
  if (s.question.method == Method::lora) {
    HEADROOM_ASSIGN(graph, with_adapters(s, graph));
  }
  return graph;
}

}  // namespace headroom::fit
