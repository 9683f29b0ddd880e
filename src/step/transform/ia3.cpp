#include "step/transform/ia3.h"

#include <algorithm>
#include <map>
#include <set>

#include "step/transform/graph_rewriter.h"
#include "step/transform/input_gradients.h"
#include "step/transform/peft.h"

namespace headroom::step {

using model::Graph;
using model::GraphBuilder;
using model::Operation;
using model::Parameter;
using model::ParameterRole;
using model::Var;

namespace {

// peft 0.21's TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING, for the families there are here.
constexpr std::array kTargets = std::to_array<ArchitectureTargets>({
    {"bert", {"key", "value", "output.dense"}},
    {"bloom", {"query_key_value", "mlp.dense_4h_to_h"}},
    {"deberta-v2", {"key_proj", "value_proj", "output.dense"}},
    {"falcon", {"query_key_value", "dense_4h_to_h"}},
    {"gemma", {"q_proj", "v_proj", "down_proj"}},
    {"gemma2", {"q_proj", "v_proj", "down_proj"}},
    {"gemma3_text", {"q_proj", "v_proj", "down_proj"}},
    {"gpt2", {"c_attn", "mlp.c_proj"}},
    {"gpt_bigcode", {"c_attn", "mlp.c_proj"}},
    {"gpt_neo", {"q_proj", "v_proj", "c_proj"}},
    {"gpt_neox", {"query_key_value", "dense_4h_to_h"}},
    {"gptj", {"q_proj", "v_proj", "fc_out"}},
    {"llama", {"k_proj", "v_proj", "down_proj"}},
    {"llama4", {"q_proj", "v_proj", "down_proj"}},
    {"mistral", {"k_proj", "v_proj", "down_proj"}},
    {"mixtral", {"k_proj", "v_proj", "w2"}},
    {"mt5", {"k", "v", "wi_1"}},
    {"opt", {"q_proj", "k_proj", "fc2"}},
    {"phi", {"q_proj", "v_proj", "fc2"}},
    {"qwen2", {"q_proj", "v_proj", "down_proj"}},
    {"qwen3", {"q_proj", "v_proj", "down_proj"}},
    {"roberta", {"key", "value", "output.dense"}},
    {"t5", {"k", "v", "wo"}},
});

// TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING.
constexpr std::array kFeedforward = std::to_array<ArchitectureTargets>({
    {"bert", {"output.dense"}},
    {"bloom", {"mlp.dense_4h_to_h"}},
    {"deberta-v2", {"output.dense"}},
    {"falcon", {"dense_4h_to_h"}},
    {"gemma", {"down_proj"}},
    {"gemma2", {"down_proj"}},
    {"gemma3_text", {"down_proj"}},
    {"gpt2", {"mlp.c_proj"}},
    {"gpt_bigcode", {"mlp.c_proj"}},
    {"gpt_neo", {"c_proj"}},
    {"gpt_neox", {"dense_4h_to_h"}},
    {"gptj", {"fc_out"}},
    {"llama", {"down_proj"}},
    {"llama4", {"down_proj"}},
    {"mistral", {"down_proj"}},
    {"mixtral", {"w2"}},
    {"opt", {"fc2"}},
    {"phi", {"fc2"}},
    {"qwen2", {"down_proj"}},
    {"qwen3", {"down_proj"}},
    {"roberta", {"output.dense"}},
    {"t5", {"wo"}},
});

struct Vector {
  Var value;
  bool feedforward = false;
};

class Ia3Writer {
 public:
  Ia3Writer(const Graph& graph, const Ia3Options& options)
      : graph_(graph), options_(options), rewriter_(graph) {
    feedforward_ = options.feedforward.empty() ? targets_for(kFeedforward, options.model_type)
                                               : options.feedforward;
  }

  Graph run(const std::vector<LinearSite>& sites) {
    std::vector<std::string> modules;
    for (const LinearSite& site : sites) {
      if (!site.is_idle) {
        first_.emplace(site.first, site);
        last_.emplace(site.last, site);
      }
      modules.push_back(module_of(graph_.parameters[site.weight].name));
      add_vector(site, modules.back());
    }
    Graph graph = rewriter_.run([this](const Operation& operation) { return replace(operation); });
    name_as_peft_does(graph, std::move(modules), options_.trains_head);
    return graph;
  }

 private:
  void add_vector(const LinearSite& site, const std::string& module) {
    if (vectors_.contains(site.weight)) return;
    Vector vector;
    // Its own rule, which asks for the end of a name and nothing before it.
    vector.feedforward = std::ranges::any_of(
        feedforward_, [&](const std::string& name) { return module.ends_with(name); });
    Parameter parameter;
    parameter.name = module + ".ia3_l.default";
    if (vector.feedforward) {
      parameter.shape = {1, site.in_features};
    } else {
      parameter.shape = {site.out_features, 1};
    }
    parameter.role = ParameterRole::other;
    parameter.dtype = options_.adapter_dtype;
    parameter.adapter = true;
    vector.value = rewriter_.add_parameter(site.last_parameter, std::move(parameter));
    vectors_.emplace(site.weight, std::move(vector));
  }

  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = static_cast<uint32_t>(&operation - graph_.operations.data());
    const auto first = first_.find(at);
    const auto last = last_.find(at);
    if (first == first_.end() && last == last_.end()) {
      if (!options_.require_input_gradients || !is_input_embedding(graph_, operation)) return {};
      return {rewriter_.builder().require_grad(rewriter_.copy_of(operation))};
    }
    if (first != first_.end()) begin_call(first->second);
    const LinearSite& site = first != first_.end() ? first->second : last->second;
    const bool takes_scaled = first != first_.end() && vectors_.at(site.weight).feedforward;
    Var result = takes_scaled ? on_scaled(operation) : rewriter_.copy_of(operation);
    if (last == last_.end()) return {std::move(result)};
    if (site.first != site.last) rewriter_.let_go(operation.inputs[0]);
    return {end_call(site, std::move(result))};
  }

  // ia3_scaling = 1; ia3_scaling *= vector.flatten(). A feed-forward module's input is scaled; what
  // was made on the way lives as long as the module's forward function.
  void begin_call(const LinearSite& site) {
    GraphBuilder& g = rewriter_.builder();
    const Vector& vector = vectors_.at(site.weight);
    call_.scaling = g.mul(g.view(vector.value, {-1}), 1.0);
    if (!vector.feedforward) return;
    const Var x = rewriter_.value(site.input);
    const Var dtype = g.dtype_of(x);
    call_.x = g.to_like(x, vector.value);
    call_.scaled = g.to_like(g.mul(call_.x, call_.scaling), dtype);
  }

  // The module's first operation, on its scaled input.
  Var on_scaled(const Operation& operation) {
    GraphBuilder& g = rewriter_.builder();
    // addmm is never first; linear modules of all kinds take what they are called with first.
    std::vector<Var> inputs{call_.scaled};
    for (size_t i = 1; i < operation.inputs.size(); ++i) {
      inputs.push_back(rewriter_.value(operation.inputs[i]));
    }
    return g.apply(operation.kind, std::move(inputs), operation.attributes);
  }

  Var end_call(const LinearSite& site, Var result) {
    GraphBuilder& g = rewriter_.builder();
    if (!vectors_.at(site.weight).feedforward) {
      const Var dtype = g.dtype_of(result);
      result = g.to_like(g.mul(result, call_.scaling), dtype);
    }
    call_ = {};
    return result;
  }

  // Of the module that is being called.
  struct Call {
    Var scaling;
    Var x;
    Var scaled;
  };

  const Graph& graph_;
  const Ia3Options& options_;
  GraphRewriter rewriter_;
  std::vector<std::string> feedforward_;
  std::map<uint32_t, LinearSite> first_;  // by the operation that begins them
  std::map<uint32_t, LinearSite> last_;   // by the operation that ends them
  std::map<uint32_t, Vector> vectors_;    // by weight: a module called twice has one
  Call call_;
};

std::string joined(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// peft takes any name and finds nothing by a wrong one; whoever gave it meant something.
Result<void> check_feedforward(const Graph& graph, const Ia3Options& options,
                               const std::vector<LinearSite>& sites) {
  std::set<std::string> adapted;  // by the last part of their names
  for (const std::string& name : options.feedforward) {
    bool is_found = false;
    for (const LinearSite& site : sites) {
      const std::string module = module_of(graph.parameters[site.weight].name);
      is_found |= module.ends_with(name);
      adapted.insert(module.substr(module.rfind('.') + 1));
    }
    if (is_found) continue;
    return Error{ErrorCode::usage, "no module that gets a vector is named " + name,
                 "--ia3-feedforward",
                 "those that do are " + joined(adapted) + " (--lora-targets names others)"};
  }
  return {};
}

}  // namespace

Result<Graph> apply_ia3(const Graph& graph, const Ia3Options& options) {
  HEADROOM_ASSIGN(const std::vector<LinearSite> sites,
                  adapter_sites(graph,
                                options.targets.empty() ? targets_for(kTargets, options.model_type)
                                                        : options.targets,
                                options.model_type));
  HEADROOM_TRY(check_feedforward(graph, options, sites));
  return Ia3Writer(graph, options).run(sites);
}

}  // namespace headroom::step
