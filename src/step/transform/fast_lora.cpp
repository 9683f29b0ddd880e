#include "step/transform/fast_lora.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "step/fused_operations.h"
#include "step/transform/graph_rewriter.h"
#include "step/transform/linear_site.h"

namespace headroom::step {

using model::Graph;
using model::kNoValue;
using model::Operation;
using model::ValueId;
using model::Var;
using op::OpKind;

namespace {

constexpr std::string_view kBaseLayer = ".base_layer";

// One call of an adapted module: operations [first, last], as apply_lora writes them.
struct Call {
  uint32_t first = 0;
  uint32_t last = 0;
  ValueId input = kNoValue;
  ValueId weight = kNoValue;
  ValueId a = kNoValue;
  ValueId b = kNoValue;
  ValueId bias = kNoValue;
  op::QuantizedLinear base;
  double dropout = 0;
};

bool belongs_to_adapter(OpKind kind) {
  constexpr auto kKinds = std::to_array<OpKind>({OpKind::clone, OpKind::dtype_of, OpKind::cast_like,
                                                 OpKind::dropout, OpKind::linear, OpKind::mul});
  return std::ranges::count(kKinds, kind) > 0;
}

// From the product to the sum of base and adapter, and the cast behind it.
std::optional<uint32_t> end_of_call(const Graph& graph, uint32_t product, double& dropout) {
  uint32_t at = product + 1;
  while (at < graph.operations.size() && belongs_to_adapter(graph.operations[at].kind)) {
    if (graph.operations[at].kind == OpKind::dropout) {
      dropout = graph.operations[at].attributes.number;
    }
    ++at;
  }
  if (at >= graph.operations.size() || graph.operations[at].kind != OpKind::add) return {};
  const bool is_cast_back = at + 1 < graph.operations.size() &&
                            graph.operations[at + 1].kind == OpKind::cast_like &&
                            graph.operations[at + 1].inputs[0] == graph.operations[at].outputs[0];
  return is_cast_back ? at + 1 : at;
}

class FastLoraWriter {
 public:
  FastLoraWriter(const Graph& graph, std::string_view model_type)
      : graph_(graph), rewriter_(graph) {
    find_calls();
    // Experts are left alone.
    const bool has_mlp =
        model_type == "llama" || model_type == "mistral" || model_type == "granite";
    for (const auto& [module, call] : calls_) {
      const auto [prefix, name] = parts_of(module);
      if (name == "q_proj") join_attention(prefix);
      if (name == "o_proj") join({prefix + "o_proj"});
      if (name == "gate_proj" && has_mlp) join_mlp(prefix);
    }
  }

  Graph run() {
    return rewriter_.run([this](const Operation& operation) { return replace(operation); });
  }

 private:
  struct Group {
    OpKind kind = OpKind::fast_lora;
    std::vector<const Call*> calls;
  };

  static std::pair<std::string, std::string> parts_of(const std::string& module) {
    const size_t dot = module.rfind('.');
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    return {module.substr(0, begin), module.substr(begin)};
  }

  void find_calls() {
    std::map<std::string, ValueId> parameters;
    for (const model::Parameter& parameter : graph_.parameters) {
      parameters[parameter.name] = parameter.value;
    }
    for (const LinearSite& site : linear_sites(graph_)) {
      const Operation& product = graph_.operations[site.product];
      std::string module = module_of(graph_.parameters[site.weight].name);
      if (product.kind != OpKind::quantized_linear || !module.ends_with(kBaseLayer)) continue;
      module.resize(module.size() - kBaseLayer.size());
      const auto a = parameters.find(module + ".lora_A.default.weight");
      const auto b = parameters.find(module + ".lora_B.default.weight");
      if (a == parameters.end() || b == parameters.end()) continue;
      Call call = call_of(product);
      const auto end = end_of_call(graph_, site.product, call.dropout);
      if (!end) continue;
      call.first = site.product;
      call.last = *end;
      call.a = a->second;
      call.b = b->second;
      calls_.emplace(std::move(module), call);
    }
  }

  static Call call_of(const Operation& product) {
    Call call;
    call.input = product.inputs[0];
    call.weight = product.inputs[1];
    call.bias = product.inputs[2];
    const model::Numbers& numbers = product.attributes.ints;
    call.base.format = static_cast<op::QuantizedFormat>(numbers[0]);
    call.base.in = numbers[1];
    call.base.out = numbers[2];
    call.base.unpacked = static_cast<op::DType>(numbers[3]);
    return call;
  }

  // The group that these modules make, if all of them are adapted.
  Group* join(const std::vector<std::string>& modules) {
    Group group;
    for (const std::string& module : modules) {
      const auto found = calls_.find(module);
      if (found == calls_.end()) return nullptr;
      group.calls.push_back(&found->second);
    }
    const uint32_t first = group.calls[0]->first;
    for (const Call* call : group.calls) {
      for (uint32_t i = call->first; i <= call->last; ++i) gone_.insert(i);
    }
    return &(groups_[first] = std::move(group));
  }

  void join_attention(const std::string& prefix) {
    join({prefix + "q_proj", prefix + "k_proj", prefix + "v_proj"});
  }

  // Between gate, up and down stand the activation and the product, and nothing else.
  void join_mlp(const std::string& prefix) {
    const std::array<std::string, 3> names{prefix + "gate_proj", prefix + "up_proj",
                                           prefix + "down_proj"};
    std::array<const Call*, 3> calls{};
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = calls_.find(names[i]);
      if (found == calls_.end()) return;
      calls[i] = &found->second;
    }
    const bool is_plain = calls[1]->first == calls[0]->last + 2 &&
                          calls[2]->first == calls[1]->last + 2 &&
                          graph_.operations[calls[0]->last + 1].kind == OpKind::silu &&
                          graph_.operations[calls[1]->last + 1].kind == OpKind::mul;
    if (!is_plain) return;
    if (Group* group = join({names.begin(), names.end()})) {
      group->kind = OpKind::fast_lora_mlp;
      gone_.insert(calls[0]->last + 1);
      gone_.insert(calls[1]->last + 1);
    }
  }

  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = rewriter_.index_of(operation);
    if (const auto group = groups_.find(at); group != groups_.end()) write(group->second);
    if (const auto made = made_.find(at); made != made_.end()) return {std::move(made->second)};
    return gone_.contains(at) ? GraphRewriter::gone(operation) : GraphRewriter::Outputs();
  }

  void write(const Group& group) {
    std::vector<Var> inputs{rewriter_.value(group.calls[0]->input)};
    std::vector<op::QuantizedLinear> bases;
    for (const Call* call : group.calls) {
      for (const ValueId id : {call->weight, call->a, call->b, call->bias}) {
        inputs.push_back(rewriter_.value(id));
      }
      bases.push_back(call->base);
    }
    const bool is_mlp = group.kind == OpKind::fast_lora_mlp;
    std::vector<Var> outputs = rewriter_.builder().apply_many(
        group.kind, std::move(inputs), is_mlp ? 1 : group.calls.size(),
        fast_lora_attributes(bases, group.calls[0]->dropout));
    if (is_mlp) {
      made_[group.calls.back()->last] = std::move(outputs[0]);
      return;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      made_[group.calls[i]->last] = std::move(outputs[i]);
    }
  }

  const Graph& graph_;
  GraphRewriter rewriter_;
  std::map<std::string, Call> calls_;  // by module
  std::map<uint32_t, Group> groups_;   // by their first operation
  std::set<uint32_t> gone_;            // operations of all groups
  std::map<uint32_t, Var> made_;       // what to hand on at an operation
};

}  // namespace

Graph apply_fast_lora(const Graph& graph, std::string_view model_type) {
  return FastLoraWriter(graph, model_type).run();
}

}  // namespace headroom::step
