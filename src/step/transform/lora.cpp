#include "step/transform/lora.h"

#include <array>
#include <map>

#include "operator/functional.h"
#include "step/transform/dora.h"
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
using op::OpKind;

namespace {

constexpr int64_t kRankMax = 1 << 16;

// peft 0.21's TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, for the families there are here.
constexpr std::array kTargets = std::to_array<ArchitectureTargets>({
    {"bert", {"query", "value"}},
    {"bloom", {"query_key_value"}},
    {"codegen", {"qkv_proj"}},
    {"deberta-v2", {"query_proj", "value_proj"}},
    {"electra", {"query", "value"}},
    {"falcon", {"query_key_value"}},
    {"gemma", {"q_proj", "v_proj"}},
    {"gemma2", {"q_proj", "v_proj"}},
    {"gemma3_text", {"q_proj", "v_proj"}},
    {"gemma4", {"q_proj", "v_proj"}},
    {"gpt2", {"c_attn"}},
    {"gpt_bigcode", {"c_attn"}},
    {"gpt_neo", {"q_proj", "v_proj"}},
    {"gpt_neox", {"query_key_value"}},
    {"gptj", {"q_proj", "v_proj"}},
    {"llama", {"q_proj", "v_proj"}},
    {"llama4", {"q_proj", "v_proj"}},
    {"mistral", {"q_proj", "v_proj"}},
    {"mixtral", {"q_proj", "v_proj"}},
    {"mt5", {"q", "v"}},
    {"opt", {"q_proj", "v_proj"}},
    {"phi", {"q_proj", "v_proj", "fc1", "fc2"}},
    {"qwen2", {"q_proj", "v_proj"}},
    {"qwen3", {"q_proj", "v_proj"}},
    {"roberta", {"query", "value"}},
    {"stablelm", {"q_proj", "v_proj"}},
    {"t5", {"q", "v"}},
    {"xlm-roberta", {"query", "value"}},
});

// What stands beside one module.
struct Adapter {
  Var a;
  Var b;
  Var magnitude;  // DoRA's
};

class LoraWriter {
 public:
  LoraWriter(const Graph& graph, const LoraOptions& options)
      : graph_(graph), options_(options), rewriter_(graph) {}

  Graph run(const std::vector<LinearSite>& sites) {
    for (const LinearSite& site : sites) {
      if (!site.is_idle) sites_.emplace(site.last, site);
      add_adapter(site);
    }
    Graph graph = rewriter_.run([this](const Operation& operation) { return replace(operation); });
    std::vector<std::string> modules;
    for (const auto& [weight, adapter] : adapters_) {
      modules.push_back(module_of(graph_.parameters[weight].name));
    }
    name_as_peft_does(graph, std::move(modules), options_.trains_head);
    return graph;
  }

 private:
  void add_adapter(const LinearSite& site) {
    if (adapters_.contains(site.weight)) return;
    const std::string module = module_of(graph_.parameters[site.weight].name);
    Parameter a;
    a.name = module + ".lora_A.default.weight";
    a.shape = {options_.rank, site.in_features};
    a.role = ParameterRole::linear;
    a.dtype = options_.adapter_dtype;
    a.adapter = true;
    Parameter b = a;
    b.name = module + ".lora_B.default.weight";
    b.shape = {site.out_features, options_.rank};
    Parameter magnitude = a;
    magnitude.name = module + ".lora_magnitude_vector.default.weight";
    magnitude.shape = {site.out_features};
    magnitude.role = ParameterRole::other;
    Adapter adapter;
    adapter.a = rewriter_.add_parameter(site.last_parameter, std::move(a));
    adapter.b = rewriter_.add_parameter(site.last_parameter, std::move(b));
    if (options_.dora) {
      adapter.magnitude = rewriter_.add_parameter(site.last_parameter, std::move(magnitude));
    }
    adapters_.emplace(site.weight, std::move(adapter));
  }

  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = rewriter_.index_of(operation);
    if (const auto site = sites_.find(at); site != sites_.end()) {
      return {adapted(operation, site->second)};
    }
    if (options_.require_input_gradients && is_input_embedding(graph_, operation)) {
      GraphBuilder& g = rewriter_.builder();
      return {g.require_grad(rewriter_.copy_of(operation))};
    }
    return {};
  }

  // The forward function of the adapted module, variable by variable.
  Var adapted(const Operation& operation, const LinearSite& site) {
    GraphBuilder& g = rewriter_.builder();
    const Adapter& adapter = adapters_.at(site.weight);
    if (const auto format = bitsandbytes_format(operation)) {
      return adapted_bitsandbytes(operation, site, *format);
    }
    Var result = rewriter_.copy_of(operation);
    if (site.first != site.last) rewriter_.let_go(operation.inputs[0]);
    const Var result_dtype = g.dtype_of(result);
    const Var x = cast_input(rewriter_.value(site.input), adapter);
    if (options_.dora) {
      const Var dropped = options_.dropout > 0 ? g.dropout(x, options_.dropout) : x;
      Var delta = dora_delta(g, dora_call(site, adapter, dropped, result));
      result = g.add(result, std::move(delta));
    } else {
      result = g.add(std::move(result), delta_of(x, adapter));
    }
    return g.to_like(std::move(result), result_dtype);
  }

  Var cast_input(Var x, const Adapter& adapter) {
    GraphBuilder& g = rewriter_.builder();
    if (options_.input_dtype) return g.to(std::move(x), *options_.input_dtype);
    return g.to_like(std::move(x), adapter.a);
  }

  [[nodiscard]] double scaling() const {
    return options_.alpha / static_cast<double>(options_.rank);
  }

  DoraCall dora_call(const LinearSite& site, const Adapter& adapter, Var x, Var base_result) {
    DoraCall call;
    call.x = std::move(x);
    call.base_result = std::move(base_result);
    call.weight = rewriter_.value(graph_.parameters[site.weight].value);
    if (site.last_parameter != site.weight) {
      call.bias = rewriter_.value(graph_.parameters[site.last_parameter].value);
    }
    call.a = adapter.a;
    call.b = adapter.b;
    call.magnitude = adapter.magnitude;
    call.in_features = site.in_features;
    call.conv1d = site.conv1d;
    call.scaling = scaling();
    call.drops = options_.dropout > 0;
    return call;
  }

  // B(A(dropout(x))) * scaling
  Var delta_of(const Var& x, const Adapter& adapter) {
    GraphBuilder& g = rewriter_.builder();
    Var low = options_.dropout > 0 ? g.dropout(x, options_.dropout) : x;
    Var delta = g.linear(g.linear(std::move(low), adapter.a), adapter.b);
    return g.mul(std::move(delta), scaling());
  }

  // Of a bitsandbytes module; GPTQ's is adapted like any other.
  static std::optional<op::QuantizedFormat> bitsandbytes_format(const Operation& operation) {
    if (operation.kind != OpKind::quantized_linear) return {};
    const auto format = static_cast<op::QuantizedFormat>(operation.attributes.ints[0]);
    if (format == op::QuantizedFormat::gptq) return {};
    return format;
  }

  // Beside a 4-bit weight the base's answer is cloned; casts are made outside of autocast only.
  Var adapted_bitsandbytes(const Operation& operation, const LinearSite& site,
                           op::QuantizedFormat format) {
    GraphBuilder& g = rewriter_.builder();
    const Adapter& adapter = adapters_.at(site.weight);
    Var result = rewriter_.copy_of(operation);
    if (format != op::QuantizedFormat::int8) result = g.clone(std::move(result));
    Var x = rewriter_.value(site.input);
    if (!options_.autocast) x = g.to_like(std::move(x), adapter.a);
    Var delta = delta_of(x, adapter);
    if (!options_.autocast) delta = g.to_like(std::move(delta), g.dtype_of(result));
    return g.add(std::move(result), std::move(delta));
  }

  const Graph& graph_;
  const LoraOptions& options_;
  GraphRewriter rewriter_;
  std::map<uint32_t, LinearSite> sites_;  // by the operation that ends them
  std::map<uint32_t, Adapter> adapters_;  // by weight: a module called twice has one
};

}  // namespace

std::vector<std::string> default_lora_targets(std::string_view model_type) {
  return targets_for(kTargets, model_type);
}

Result<Graph> apply_lora(const Graph& graph, const LoraOptions& options) {
  if (options.rank < 1 || options.rank > kRankMax) {
    return Error{ErrorCode::usage, "LoRA rank " + std::to_string(options.rank), "--lora-rank",
                 "a rank is 1 to " + std::to_string(kRankMax)};
  }
  HEADROOM_ASSIGN(const std::vector<LinearSite> sites,
                  adapter_sites(graph,
                                options.targets.empty() ? default_lora_targets(options.model_type)
                                                        : options.targets,
                                options.model_type));
  return LoraWriter(graph, options).run(sites);
}

}  // namespace headroom::step
