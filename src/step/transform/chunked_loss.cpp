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

struct Piece {
  int64_t begin = 0;
  int64_t end = 0;
};

// torch.chunk: pieces of equal length, the last one shorter; maybe fewer than asked for.
std::vector<Piece> pieces_of(int64_t length, int64_t chunks) {
  std::vector<Piece> pieces;
  const int64_t step = std::max<int64_t>(1, (length + chunks - 1) / chunks);
  for (int64_t begin = 0; begin < length; begin += step) {
    pieces.push_back({begin, std::min(begin + step, length)});
  }
  return pieces;
}

class ChunkedLossWriter {
 public:
  ChunkedLossWriter(const Graph& graph, const HeadSite& site, int64_t chunks)
      : graph_(graph),
        site_(site),
        pieces_(pieces_of(site.sequence, chunks)),
        rewriter_(graph) {}

  Graph run() {
    return rewriter_.run([this](const Operation& operation) { return replace(operation); });
  }

 private:
  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = static_cast<uint32_t>(&operation - graph_.operations.data());
    if (at == *site_.loss.rbegin()) return {loss()};
    const bool is_head = site_.head.contains(at);
    if (at == *site_.head.rbegin()) make_logits();
    const bool goes = is_head || site_.loss.contains(at);
    return goes ? GraphRewriter::gone(operation) : GraphRewriter::Outputs();
  }

  // The head's operations once for each piece of the hidden states.
  void make_logits() {
    GraphBuilder& g = rewriter_.builder();
    for (const Piece& piece : pieces_) {
      std::map<ValueId, Var> made;
      made[site_.hidden] = g.slice(rewriter_.value(site_.hidden), 1, piece.begin, piece.end);
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
      const std::array<Var, 2> parts{
          g.slice(rewriter_.value(site_.labels), -1, 1, site_.sequence),
          g.full({site_.batch, 1}, model::DType::i64)};
      labels = g.cat(parts, 1);
    }
    std::vector<Var> targets;
    for (const Piece& piece : pieces_) {
      targets.push_back(g.reshape(g.slice(labels, 1, piece.begin, piece.end), {-1}));
    }
    Var total;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      Var rows = g.to(g.reshape(logits_[i], {-1, site_.classes}), model::DType::f32);
      Var part = g.cross_entropy(std::move(rows), targets[i]);
      total = total ? g.add(std::move(total), std::move(part)) : std::move(part);
    }
    logits_.clear();
    return g.div(std::move(total), 1.0);
  }

  const Graph& graph_;
  const HeadSite& site_;
  std::vector<Piece> pieces_;
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
