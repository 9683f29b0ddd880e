#include "step/transform/head_in_chunks.h"

#include <string>

#include "step/transform/graph_rewriter.h"
#include "step/transform/head_site.h"

namespace headroom::step {

Result<model::Graph> apply_head_in_chunks(const model::Graph& graph, const HeadInChunks& options) {
  HEADROOM_ASSIGN(const HeadSite site, find_head(graph));
  if (site.head.size() != 1 || site.bias != model::kNoValue) {
    return Error{ErrorCode::usage, "a head in chunks is a product and nothing else", "--loss",
                 "this model changes its logits: --loss hf"};
  }
  if (options.chunks < 1 || site.sequence % options.chunks != 0) {
    return Error{ErrorCode::usage,
                 std::to_string(options.chunks) + " chunks do not divide a sequence of " +
                     std::to_string(site.sequence),
                 "--loss-chunks", "a divisor of what a rank has of --seq"};
  }
  GraphRewriter rewriter(graph);
  return rewriter.run([&](const model::Operation& operation) -> GraphRewriter::Outputs {
    const uint32_t at = rewriter.index_of(operation);
    if (at == *site.loss.rbegin()) {
      return {rewriter.builder().apply(
          op::OpKind::head_in_chunks,
          {rewriter.value(site.hidden), rewriter.value(site.weight), rewriter.value(site.labels)},
          options.attributes())};
    }
    const bool goes = site.head.contains(at) || site.loss.contains(at);
    return goes ? GraphRewriter::gone(operation) : GraphRewriter::Outputs();
  });
}

}  // namespace headroom::step
