#include "step/transform/linear_site.h"

#include <set>

#include "operator/kind.h"

namespace headroom::step {

using model::Graph;
using model::kNoValue;
using model::Operation;
using model::ParameterRole;
using op::OpKind;

namespace {

constexpr uint32_t kNone = UINT32_MAX;

// What is asked of a graph over and over, by value.
struct Index {
  std::vector<uint32_t> parameter;  // of which this is the value
  std::vector<uint32_t> producer;   // operation that makes it
  std::vector<uint32_t> viewer;     // first view of it
  std::vector<uint32_t> adder;      // operation that adds a parameter to it

  explicit Index(const Graph& graph)
      : parameter(graph.value_count, kNone),
        producer(graph.value_count, kNone),
        viewer(graph.value_count, kNone),
        adder(graph.value_count, kNone) {
    for (uint32_t i = 0; i < graph.parameters.size(); ++i) {
      if (!graph.parameters[i].tied_to) parameter[graph.parameters[i].value] = i;
    }
    for (uint32_t i = 0; i < graph.operations.size(); ++i) {
      const Operation& operation = graph.operations[i];
      for (const model::ValueId output : operation.outputs) producer[output] = i;
      if (operation.kind == OpKind::view && viewer[operation.inputs[0]] == kNone) {
        viewer[operation.inputs[0]] = i;
      }
      const bool adds_parameter = operation.kind == OpKind::add && operation.inputs.size() == 2 &&
                                  parameter[operation.inputs[1]] != kNone;
      if (adds_parameter) adder[operation.inputs[0]] = i;
    }
  }
};

// The bias comes right behind the weight in a module's parameters.
uint32_t last_parameter_of(const Graph& graph, uint32_t weight) {
  if (weight + 1 == graph.parameters.size()) return weight;
  const std::string module = module_of(graph.parameters[weight].name);
  return graph.parameters[weight + 1].name == module + ".bias" ? weight + 1 : weight;
}

std::optional<LinearSite> site_at(const Graph& graph, const Index& index, uint32_t at) {
  const Operation& operation = graph.operations[at];
  const bool conv1d = operation.kind == OpKind::addmm;
  const bool quantized = operation.kind == OpKind::quantized_linear;
  if (!conv1d && !quantized && operation.kind != OpKind::linear) return {};
  LinearSite site;
  site.first = site.product = site.last = at;
  site.conv1d = conv1d;
  site.weight = index.parameter[operation.inputs[conv1d ? 2 : 1]];
  if (site.weight == kNone) return {};
  const model::Parameter& weight = graph.parameters[site.weight];
  if (weight.shape.size() != 2 || !weight.name.ends_with("weight")) return {};
  site.last_parameter = last_parameter_of(graph, site.weight);
  site.in_features = weight.shape[conv1d ? 0 : 1];
  site.out_features = weight.shape[conv1d ? 1 : 0];
  if (quantized) {
    site.in_features = operation.attributes.ints[1];
    site.out_features = operation.attributes.ints[2];
  }
  site.input = operation.inputs[conv1d ? 1 : 0];
  const uint32_t add = index.adder[operation.outputs[0]];
  if (add != kNone && graph.parameters[index.parameter[graph.operations[add].inputs[1]]].name ==
                          module_of(weight.name) + ".bias") {
    site.last = add;
  }
  if (conv1d) {
    const uint32_t rows = index.producer[site.input];
    const uint32_t back = index.viewer[operation.outputs[0]];
    if (rows == kNone || back == kNone || graph.operations[rows].kind != OpKind::view) return {};
    site.first = rows;
    site.input = graph.operations[rows].inputs[0];
    site.last = back;
  }
  return site;
}

}  // namespace

std::vector<LinearSite> linear_sites(const Graph& graph) {
  const Index index(graph);
  std::vector<LinearSite> sites;
  for (uint32_t i = 0; i < graph.operations.size(); ++i) {
    if (const auto site = site_at(graph, index, i)) sites.push_back(*site);
  }
  return sites;
}

std::vector<LinearSite> idle_linear_sites(const Graph& graph) {
  std::set<model::ValueId> read;
  for (const Operation& operation : graph.operations) {
    read.insert(operation.inputs.begin(), operation.inputs.end());
  }
  std::vector<LinearSite> sites;
  for (uint32_t i = 0; i < graph.parameters.size(); ++i) {
    const model::Parameter& weight = graph.parameters[i];
    // A packed weight's own sizes are those of its copy.
    const model::Dims& shape = weight.loading ? weight.loading->copy : weight.shape;
    const bool is_module = weight.role == ParameterRole::linear && shape.size() == 2 &&
                           weight.name.ends_with(".weight");
    if (!is_module || weight.tied_to || weight.adapter || read.contains(weight.value)) continue;
    LinearSite& site = sites.emplace_back();
    site.weight = i;
    site.in_features = shape[1];
    site.out_features = shape[0];
    site.is_idle = true;
    site.last_parameter = last_parameter_of(graph, i);
  }
  return sites;
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

bool names_module(const std::string& target, const std::string& module) {
  if (!module.ends_with(target)) return false;
  return module.size() == target.size() || module[module.size() - target.size() - 1] == '.';
}

}  // namespace headroom::step
