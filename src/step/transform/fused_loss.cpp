#include "step/transform/fused_loss.h"

#include "operator/functional.h"
#include "step/transform/graph_rewriter.h"
#include "step/transform/head_site.h"

namespace headroom::step {

using model::Graph;
using model::GraphBuilder;
using model::Operation;
using model::Var;
using op::OpKind;

namespace {

class FusedLossWriter {
 public:
  FusedLossWriter(const Graph& graph, const HeadSite& site, FusedLoss kind)
      : site_(site), kind_(kind), rewriter_(graph) {}

  Graph run() {
    return rewriter_.run([this](const Operation& operation) { return replace(operation); });
  }

 private:
  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = rewriter_.index_of(operation);
    if (kind_ == FusedLoss::fast_causal) {
      if (at == *site_.loss.rbegin()) return {causal_loss()};
      return site_.loss.contains(at) ? GraphRewriter::gone(operation) : GraphRewriter::Outputs();
    }
    if (at != site_.cross_entropy) return {};
    Operation fused = operation;
    fused.kind =
        kind_ == FusedLoss::liger ? OpKind::liger_cross_entropy : OpKind::fast_cross_entropy;
    return {rewriter_.copy_of(fused)};
  }

  Var causal_loss() {
    GraphBuilder& g = rewriter_.builder();
    const Var logits = g.to(rewriter_.value(site_.logits), model::DType::f32);
    Var rows = g.contiguous(g.slice(logits, -2, 0, site_.sequence - 1));
    Var targets = g.contiguous(g.slice(rewriter_.value(site_.labels), -1, 1, site_.sequence));
    rows = g.view(std::move(rows), {-1, site_.classes});
    targets = g.view(std::move(targets), {-1});
    return g.apply(OpKind::fast_cross_entropy, {rows, targets});
  }

  const HeadSite& site_;
  FusedLoss kind_;
  GraphRewriter rewriter_;
};

}  // namespace

Result<Graph> apply_fused_loss(const Graph& graph, FusedLoss kind) {
  HEADROOM_ASSIGN(const HeadSite site, find_head(graph));
  return FusedLossWriter(graph, site, kind).run();
}

}  // namespace headroom::step
