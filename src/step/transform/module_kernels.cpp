#include "step/transform/module_kernels.h"

namespace headroom::step {

using model::Graph;
using model::Operation;
using model::ValueId;
using model::Var;

namespace {

class ModuleKernels {
 public:
  ModuleKernels(const Graph& graph, const ModuleReplacements& replacements)
      : replacements_(replacements), rewriter_(graph) {
    if (replacements.norm) {
      for (const NormSite& site : rms_norm_sites(graph)) norms_.emplace(site.first, site);
    }
    if (replacements.rotary) {
      for (const RotarySite& site : rotary_sites(graph)) rotaries_.emplace(site.first, site);
    }
    if (replacements.gated) {
      for (const GatedSite& site : gated_sites(graph)) {
        gates_.emplace(site.gate, Var());
        activations_.insert(site.activation);
        products_.emplace(site.product, site);
      }
    }
  }

  Graph run() {
    return rewriter_.run([this](const Operation& operation) { return replace(operation); });
  }

 private:
  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = rewriter_.index_of(operation);
    if (const auto norm = norms_.find(at); norm != norms_.end()) begin_norm(norm->second);
    if (const auto site = rotaries_.find(at); site != rotaries_.end()) begin_rotary(site->second);
    if (const auto made = made_.find(at); made != made_.end()) {
      return {std::move(made->second)};
    }
    if (at <= inside_until_ || activations_.contains(at)) return GraphRewriter::gone(operation);
    if (const auto site = products_.find(at); site != products_.end()) return {gated(site->second)};
    if (operation.outputs.size() != 1) return {};
    const auto gate = gates_.find(operation.outputs[0]);
    if (gate == gates_.end()) return {};
    // The gate outlives its activation: it is held until the product.
    gate->second = rewriter_.copy_of(operation);
    return GraphRewriter::gone(operation);
  }

  void begin_norm(const NormSite& site) {
    made_[site.last] = replacements_.norm(rewriter_.builder(), rewriter_.value(site.input),
                                          rewriter_.value(site.weight));
    inside_until_ = site.last;
  }

  void begin_rotary(const RotarySite& site) {
    auto [query, key] = replacements_.rotary(rewriter_.builder(), rewriter_.value(site.query),
                                             rewriter_.value(site.key), rewriter_.value(site.cos),
                                             rewriter_.value(site.sin));
    made_[site.last_of_query] = std::move(query);
    made_[site.last] = std::move(key);
    inside_until_ = site.last;
  }

  Var gated(const GatedSite& site) {
    Var held = std::move(gates_.at(site.gate));
    Var gate = held ? std::move(held) : rewriter_.value(site.gate);
    return replacements_.gated(rewriter_.builder(), std::move(gate), rewriter_.value(site.up));
  }

  const ModuleReplacements& replacements_;
  GraphRewriter rewriter_;
  std::map<uint32_t, NormSite> norms_;       // by their first operation
  std::map<uint32_t, RotarySite> rotaries_;  // likewise
  std::map<uint32_t, GatedSite> products_;   // by the operation that ends them
  std::set<uint32_t> activations_;
  std::map<ValueId, Var> gates_;  // that a product is to take; held from their making on
  std::map<uint32_t, Var> made_;  // what to hand on at an operation
  int64_t inside_until_ = -1;     // the last operation of the module that was begun last
};

}  // namespace

Graph replace_modules(const Graph& graph, const ModuleReplacements& replacements) {
  return ModuleKernels(graph, replacements).run();
}

}  // namespace headroom::step
