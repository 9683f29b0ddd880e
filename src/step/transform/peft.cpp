#include "step/transform/peft.h"

#include <algorithm>

namespace headroom::step {

using model::Graph;
using model::Parameter;
using model::ParameterRole;

std::vector<std::string> targets_for(std::span<const ArchitectureTargets> table,
                                     std::string_view model_type) {
  const auto found = std::ranges::find(table, model_type, &ArchitectureTargets::model_type);
  std::vector<std::string> targets;
  if (found == table.end()) return targets;
  for (const std::string_view target : found->targets) {
    if (!target.empty()) targets.emplace_back(target);
  }
  return targets;
}

namespace {

bool is_named(const std::vector<std::string>& targets, const std::string& module) {
  return std::ranges::any_of(
      targets, [&](const std::string& target) { return names_module(target, module); });
}

// Modules that peft adapts as well: a linear one whose weight is another module's, and embeddings.
Result<void> check_targets(const Graph& graph, const std::vector<std::string>& targets) {
  for (const Parameter& parameter : graph.parameters) {
    const std::string module = module_of(parameter.name);
    const bool is_embedding = parameter.role == ParameterRole::embedding;
    if ((!is_embedding && !parameter.tied_to) || !is_named(targets, module)) continue;
    return Error{ErrorCode::usage,
                 module +
                     (parameter.tied_to ? " has its weight from " +
                                              module_of(graph.parameters[*parameter.tied_to].name)
                                        : std::string(" is an embedding")) +
                     ", and adapters beside such a module cannot be modelled yet",
                 "--lora-targets", "name modules of the layers, such as q_proj"};
  }
  return {};
}

}  // namespace

Result<std::vector<LinearSite>> adapter_sites(const Graph& graph,
                                              const std::vector<std::string>& targets,
                                              std::string_view model_type) {
  if (targets.empty()) {
    return Error{ErrorCode::usage,
                 "peft knows no target modules for \"" + std::string(model_type) + "\"",
                 "--lora-targets",
                 "name the modules that get adapters: all-linear, or the ends of their names"};
  }
  HEADROOM_TRY(check_targets(graph, targets));
  const bool all_linear = targets.size() == 1 && targets[0] == "all-linear";
  std::vector<LinearSite> sites;
  const auto choose = [&](const std::vector<LinearSite>& from) {
    for (const LinearSite& site : from) {
      const Parameter& weight = graph.parameters[site.weight];
      const std::string module = module_of(weight.name);
      const bool is_wanted =
          all_linear ? weight.role == ParameterRole::linear : is_named(targets, module);
      if (is_wanted) sites.push_back(site);
    }
  };
  choose(idle_linear_sites(graph));
  choose(linear_sites(graph));
  if (!sites.empty()) return sites;
  std::string names;
  for (const std::string& target : targets) names += (names.empty() ? "" : ", ") + target;
  return Error{ErrorCode::usage, "no linear module of the model is named " + names,
               "--lora-targets", "targets are the ends of module names, such as q_proj"};
}

PeftPlace peft_place(const Parameter& parameter) {
  constexpr std::string_view kWrapped = "base_model.model.";
  constexpr std::string_view kBase = ".base_layer";
  std::string module = module_of(parameter.name);
  if (module.starts_with(kWrapped)) module.erase(0, kWrapped.size());
  if (module.ends_with(kBase)) module.resize(module.size() - kBase.size());
  if (!parameter.adapter) return {std::move(module)};
  const auto is_part = [&](std::string_view end) {
    if (!module.ends_with(end)) return false;
    module.resize(module.size() - end.size());
    return true;
  };
  if (is_part(".lora_A.default")) return {std::move(module), PeftPlace::Part::lora_a};
  if (is_part(".lora_B.default")) return {std::move(module), PeftPlace::Part::lora_b};
  return {std::move(module), PeftPlace::Part::other_adapter};
}

namespace {

constexpr const char* kPrefix = "base_model.model.";

// Within a head that peft's task SEQ_CLS trains: one whose name ends in one of
// classifier_module_names, as DistilBERT's pre_classifier's does.
bool is_saved(std::string_view module) {
  const std::string_view head = module.substr(0, module.find('.'));
  return head.ends_with("score") || head.ends_with("classifier");
}

}  // namespace

void name_as_peft_does(Graph& graph, std::vector<std::string> modules, bool trains_head) {
  std::ranges::sort(modules);
  std::vector<Parameter> originals;
  for (Parameter& parameter : graph.parameters) {
    const std::string module = module_of(parameter.name);
    if (trains_head && is_saved(module)) {
      const size_t end = std::min(module.find('.'), module.size());
      Parameter& original = originals.emplace_back(parameter);
      original.name.insert(end, ".original_module").insert(0, kPrefix);
      original.trainable = false;
      original.value = graph.value_count++;
      parameter.trainable = true;
      parameter.name.insert(end, ".modules_to_save.default");
    } else if (!parameter.adapter) {
      parameter.trainable = false;
      if (std::ranges::binary_search(modules, module)) {
        parameter.name.insert(module.size(), ".base_layer");
      }
    }
    parameter.name.insert(0, kPrefix);
  }
  // Nobody reads them. At the end, since ties go by index.
  std::ranges::move(originals, std::back_inserter(graph.parameters));
  for (Parameter& buffer : graph.buffers) buffer.name.insert(0, kPrefix);
}

}  // namespace headroom::step
