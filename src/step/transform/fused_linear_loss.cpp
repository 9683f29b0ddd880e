#include "step/transform/fused_linear_loss.h"

#include "step/fused_operations.h"
#include "step/transform/graph_rewriter.h"
#include "step/transform/head_site.h"

namespace headroom::step {

using model::Graph;
using model::GraphBuilder;
using model::Operation;
using model::Var;
using op::OpKind;

namespace {

class FusedLinearLossWriter {
 public:
  FusedLinearLossWriter(const Graph& graph, const HeadSite& site,
                        const FusedLinearLossOptions& options)
      : graph_(graph), site_(site), options_(options), rewriter_(graph) {}

  // After the product there may be nothing, or a cap: a quotient, its tanh, a product.
  [[nodiscard]] bool kernel_makes_these_logits() const {
    std::vector<OpKind> kinds;
    for (const uint32_t i : site_.head) kinds.push_back(graph_.operations[i].kind);
    return kinds.size() == 1 ||
           kinds == std::vector<OpKind>{OpKind::linear, OpKind::div, OpKind::tanh, OpKind::mul};
  }

  Graph run() {
    return rewriter_.run([this](const Operation& operation) { return replace(operation); });
  }

 private:
  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = rewriter_.index_of(operation);
    if (at == *site_.loss.rbegin()) return {loss()};
    const bool goes = site_.head.contains(at) || site_.loss.contains(at);
    return goes ? GraphRewriter::gone(operation) : GraphRewriter::Outputs();
  }

  Var loss() {
    GraphBuilder& g = rewriter_.builder();
    Var hidden = rewriter_.value(site_.hidden);
    Var labels = rewriter_.value(site_.labels);
    int64_t last = site_.sequence;
    if (options_.shifts_hidden) {
      hidden = g.contiguous(g.slice(std::move(hidden), -2, 0, last - 1));
    } else {
      labels = g.pad(std::move(labels), {0, 1});
      ++last;
    }
    Var targets = g.contiguous(g.slice(labels, -1, 1, last));
    hidden = g.view(std::move(hidden), {-1, site_.width});
    targets = g.view(std::move(targets), {-1});
    return g.apply(OpKind::liger_linear_loss,
                   {hidden, rewriter_.value(site_.weight), rewriter_.value(site_.bias), targets},
                   attributes_of(options_.loss));
  }

  const Graph& graph_;
  const HeadSite& site_;
  const FusedLinearLossOptions& options_;
  GraphRewriter rewriter_;
};

}  // namespace

Result<Graph> apply_fused_linear_loss(const Graph& graph, const FusedLinearLossOptions& options) {
  HEADROOM_ASSIGN(const HeadSite site, find_head(graph));
  FusedLinearLossWriter writer(graph, site, options);
  if (!writer.kernel_makes_these_logits()) {
    return Error{ErrorCode::usage, "fused linear cross entropy cannot change logits on the way",
                 "--loss", "this model scales them, and Liger-Kernel has no such kernel for it"};
  }
  return writer.run();
}

}  // namespace headroom::step
