#include "step/transform/chunked_loss.h"

#include <algorithm>
#include <array>
#include <map>

#include "step/transform/graph_rewriter.h"
#include "step/transform/head_site.h"

namespace headroom::step {

using model::Graph;
using model::GraphBuilder;
using model::Operation;
using model::ValueId;
using model::Var;
using op::OpKind;

namespace {

// torch.chunk: pieces of equal length, the last one shorter; maybe fewer than asked for.
std::vector<int64_t> pieces_of(int64_t length, int64_t chunks) {
  std::vector<int64_t> pieces;
  const int64_t step = std::max<int64_t>(1, (length + chunks - 1) / chunks);
  for (int64_t begin = 0; begin < length; begin += step) {
    pieces.push_back(std::min(step, length - begin));
  }
  return pieces;
}

class ChunkedLossWriter {
 public:
  ChunkedLossWriter(const Graph& graph, const HeadSite& site, int64_t chunks)
      : graph_(graph), site_(site), pieces_(pieces_of(site.sequence, chunks)), rewriter_(graph) {}

  Graph run() {
    return rewriter_.run([this](const Operation& operation) { return replace(operation); });
  }

 private:
  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = rewriter_.index_of(operation);
    if (at == *site_.loss.rbegin()) return {loss()};
    const bool is_head = site_.head.contains(at);
    if (at == *site_.head.rbegin()) make_logits();
    const bool goes = is_head || site_.loss.contains(at);
    return goes ? GraphRewriter::gone(operation) : GraphRewriter::Outputs();
  }

  // The head's operations once for each piece of the hidden states.
  void make_logits() {
    GraphBuilder& g = rewriter_.builder();
    const std::vector<Var> hidden = g.split(rewriter_.value(site_.hidden), pieces_, 1);
    for (const Var& piece : hidden) {
      std::map<ValueId, Var> made;
      made[site_.hidden] = piece;
      Var last;
      for (const uint32_t i : site_.head) {
        const Operation& operation = graph_.operations[i];
        std::vector<Var> inputs;
        for (const ValueId id : operation.inputs) {
          const auto found = made.find(id);
          inputs.push_back(found != made.end() ? found->second : rewriter_.value(id));
        }
        last = g.apply(operation.kind, std::move(inputs), operation.attributes);
        made[operation.outputs[0]] = last;
      }
      logits_.push_back(std::move(last));
    }
  }

  // The labels are shifted by a concatenation with what is to be ignored.
  Var loss() {
    GraphBuilder& g = rewriter_.builder();
    Var labels;
    {
      const std::array<Var, 2> parts{g.slice(rewriter_.value(site_.labels), -1, 1, site_.sequence),
                                     g.full({site_.batch, 1}, model::DType::i64)};
      labels = g.cat(parts, 1);
    }
    const Var count = g.sum(g.compare(labels), {}, false);
    std::vector<Var> targets;
    for (Var& piece : g.split(labels, pieces_, 1)) {
      targets.push_back(g.reshape(std::move(piece), {-1}));
    }
    std::vector<Var> rows;
    for (const Var& logits : logits_) rows.push_back(g.reshape(logits, {-1, site_.classes}));
    Var total;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      Var part = g.cross_entropy(g.to(rows[i], model::DType::f32), targets[i]);
      total = total ? g.add_assign(std::move(total), std::move(part)) : g.add(std::move(part), 0.0);
    }
    logits_.clear();
    return g.div(std::move(total), count);
  }

  const Graph& graph_;
  const HeadSite& site_;
  std::vector<int64_t> pieces_;
  GraphRewriter rewriter_;
  std::vector<Var> logits_;
};

}  // namespace

Result<Graph> apply_chunked_loss(const Graph& graph, int64_t chunks) {
  if (chunks < 1) {
    return Error{ErrorCode::bad_input, std::to_string(chunks) + " chunks", "",
                 "a loss has one chunk or more"};
  }
  HEADROOM_ASSIGN(const HeadSite site, find_head(graph));
  return ChunkedLossWriter(graph, site, chunks).run();
}

}  // namespace headroom::step
