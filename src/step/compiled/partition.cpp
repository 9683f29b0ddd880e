#include "step/compiled/partition.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

// GCC 12 takes members of an empty optional in there for ones that are read.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

namespace headroom::step {

namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using Edge = Traits::edge_descriptor;
using Vertex = Traits::vertex_descriptor;
using Network = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS,
    boost::property<
        boost::vertex_index_t, size_t,
        boost::property<boost::vertex_color_t, boost::default_color_type,
                        boost::property<boost::vertex_distance_t, int64_t,
                                        boost::property<boost::vertex_predecessor_t, Edge>>>>,
    boost::property<boost::edge_capacity_t, int64_t,
                    boost::property<boost::edge_residual_capacity_t, int64_t,
                                    boost::property<boost::edge_reverse_t, Edge>>>>;

// More than all finite weights together, and far from where sums of them would overflow: a region
// has fewer than 2^16 values (joint_graph.cpp).
constexpr int64_t kForever = int64_t{1} << 60;
constexpr int64_t kWeightMax = int64_t{1} << 44;

// A value of fewer bytes than a quarter of what it is made of is a reduction's.
constexpr int64_t kReductionFactor = 4;
constexpr double kWeightPerStep = 1.1;
constexpr int kStepsMax = 100;

struct ValueFacts {
  bool is_argument = false;
  bool is_static = false;     // there in any case
  bool is_forward = false;    // made in the forward pass
  bool is_banned = false;     // never computed again
  bool is_read_back = false;  // backward reads it
  bool is_in_memory = false;  // somebody but fused kernels has it
  bool is_handed_on = false;  // from one checkpoint to the next
  int steps = kStepsMax;      // from here to backward
};

// The first kernel, from these readers of one value on, that is not fused with what it reads; at
// most `last`.
uint32_t first_unfused(const JointGraph& graph, const std::vector<std::vector<uint32_t>>& readers,
                       const std::vector<uint32_t>& from, uint32_t last) {
  std::set<std::pair<uint32_t, bool>> pending;  // {a kernel, is it fused with what led to it}
  for (const uint32_t reader : from) pending.emplace(reader, true);
  while (!pending.empty()) {
    const auto [k, is_fused] = *pending.begin();
    pending.erase(pending.begin());
    if (!is_fused) return k;
    for (const JointValueId made : graph.kernels[k].writes) {
      for (const uint32_t reader : readers[made]) {
        if (reader > last) continue;
        pending.emplace(reader,
                        graph.kernels[k].is_recomputable && graph.kernels[reader].is_recomputable);
      }
    }
  }
  return last;
}

// Of a value's readers in the forward pass those that come when an earlier one's results have gone
// into a product: to compute both again would not be one kernel (ban_recompute_used_far_apart).
void ban_far_readers(const JointGraph& graph, std::vector<ValueFacts>& facts) {
  std::vector<std::vector<uint32_t>> readers(graph.values.size());
  for (uint32_t k = 0; k < graph.kernels.size(); ++k) {
    if (!graph.kernels[k].is_forward) continue;
    for (const JointValueId read : graph.kernels[k].reads) readers[read].push_back(k);
  }
  for (const JointKernel& kernel : graph.kernels) {
    if (!kernel.is_forward || !kernel.is_recomputable) continue;
    for (const JointValueId value : kernel.writes) {
      if (readers[value].size() < 2) continue;
      const uint32_t limit = first_unfused(graph, readers, readers[value], readers[value].back());
      for (const uint32_t reader : readers[value]) {
        if (reader <= limit || !graph.kernels[reader].is_recomputable) continue;
        for (const JointValueId made : graph.kernels[reader].writes) facts[made].is_banned = true;
      }
    }
  }
}

// What one checkpoint hands to a later one (cleanup_recompute_tags).
void find_handed_on(const JointGraph& graph, std::vector<ValueFacts>& facts) {
  std::vector<uint32_t> made_in(graph.values.size());
  for (const JointKernel& kernel : graph.kernels) {
    if (!kernel.is_forward) continue;
    for (const JointValueId read : kernel.reads) {
      if (made_in[read] != 0 && kernel.checkpoint > made_in[read]) facts[read].is_handed_on = true;
    }
    for (const JointValueId made : kernel.writes) made_in[made] = kernel.checkpoint;
  }
}

std::vector<ValueFacts> facts_of(const JointGraph& graph) {
  std::vector<ValueFacts> facts(graph.values.size());
  for (const JointValueId value : graph.arguments) {
    facts[value].is_argument = facts[value].is_in_memory = true;
  }
  for (size_t i = 0; i < graph.arguments.size(); ++i) {
    if (graph.is_static[i]) facts[graph.arguments[i]].is_static = true;
  }
  for (const JointKernel& kernel : graph.kernels) {
    int64_t read_bytes = 0;
    for (const int64_t bytes : kernel.read_bytes) read_bytes += bytes;
    for (const JointValueId value : kernel.writes) {
      ValueFacts& made = facts[value];
      made.is_forward = kernel.is_forward;
      made.is_banned = !kernel.is_recomputable || kernel.is_random ||
                       bytes_of(graph.values[value]) * kReductionFactor < read_bytes;
      made.is_in_memory = !kernel.is_recomputable;
    }
    for (const JointValueId value : kernel.reads) {
      ValueFacts& read = facts[value];
      const bool as_it_is = !kernel.is_recomputable && !kernel.casts_operands;
      if (as_it_is) read.is_in_memory = true;
      if (kernel.is_forward) continue;
      read.is_read_back = true;
      if (as_it_is) read.is_banned = true;
    }
  }
  for (const JointTensor& output : graph.outputs) facts[output.value].is_in_memory = true;
  for (auto kernel = graph.kernels.rbegin(); kernel != graph.kernels.rend(); ++kernel) {
    int steps = kernel->is_forward ? kStepsMax : 0;
    for (const JointValueId value : kernel->writes) steps = std::min(steps, facts[value].steps);
    if (!kernel->is_forward) steps = 0;
    for (const JointValueId value : kernel->reads) {
      facts[value].steps = std::min(facts[value].steps, steps + 1);
    }
  }
  ban_far_readers(graph, facts);
  find_handed_on(graph, facts);
  return facts;
}

int64_t weight_of(const JointTensor& value, const ValueFacts& facts) {
  if (facts.is_static) return 0;
  const int steps = std::clamp(facts.steps, 1, kStepsMax);
  const double bytes = static_cast<double>(std::min(bytes_of(value), kWeightMax));
  const double weight = bytes * std::pow(kWeightPerStep, steps) * (facts.is_in_memory ? 1 : 2);
  return static_cast<int64_t>(std::min(weight, static_cast<double>(kWeightMax)));
}

class Cut {
 public:
  explicit Cut(const JointGraph& graph) : graph_(graph), facts_(facts_of(graph)) {
    network_ = Network(2 * graph.values.size() + 2);
    for (JointValueId value = 0; value < graph.values.size(); ++value) {
      if (facts_[value].is_forward || facts_[value].is_argument) {
        join(into(value), out_of(value), weight_of(graph.values[value], facts_[value]));
        if (facts_[value].is_read_back) join(out_of(value), sink(), kForever);
      }
      if (facts_[value].is_argument) join(source(), into(value), kForever);
    }
    for (const JointKernel& kernel : graph.kernels) {
      if (kernel.is_forward) join_kernel(kernel);
    }
  }

  [[nodiscard]] std::vector<bool> take() {
    boost::boykov_kolmogorov_max_flow(network_, source(), sink());
    // Of cuts of the same weight PyTorch takes the one next to backward: what can still reach the
    // sink is behind the cut.
    const std::vector<bool> is_behind = vertices_before_sink();
    std::vector<bool> kept(graph_.values.size());
    for (JointValueId value = 0; value < kept.size(); ++value) {
      kept[value] = !is_behind[into(value)] && is_behind[out_of(value)];
    }
    return kept;
  }

 private:
  static Vertex into(JointValueId value) { return 2 * value; }
  static Vertex out_of(JointValueId value) { return 2 * value + 1; }
  [[nodiscard]] Vertex source() const { return 2 * graph_.values.size(); }
  [[nodiscard]] Vertex sink() const { return source() + 1; }

  void join(Vertex from, Vertex to, int64_t capacity) {
    const Edge edge = boost::add_edge(from, to, network_).first;
    const Edge back = boost::add_edge(to, from, network_).first;
    boost::put(boost::edge_capacity, network_, edge, capacity);
    boost::put(boost::edge_capacity, network_, back, 0);
    boost::put(boost::edge_reverse, network_, edge, back);
    boost::put(boost::edge_reverse, network_, back, edge);
  }

  void join_kernel(const JointKernel& kernel) {
    const bool is_checkpointed = kernel.checkpoint != 0;
    for (const JointValueId made : kernel.writes) {
      for (const JointValueId read : kernel.reads) join(out_of(read), into(made), kForever);
      const bool is_kept =
          facts_[made].is_handed_on || std::ranges::find(kernel.kept, made) != kernel.kept.end();
      if (is_checkpointed ? is_kept : facts_[made].is_banned) {
        join(source(), into(made), kForever);
      } else if (is_checkpointed) {
        join(into(made), sink(), kForever);
      }
    }
  }

  [[nodiscard]] std::vector<bool> vertices_before_sink() const {
    std::vector<bool> reaches(boost::num_vertices(network_));
    std::vector<Vertex> pending{sink()};
    reaches[sink()] = true;
    while (!pending.empty()) {
      const Vertex vertex = pending.back();
      pending.pop_back();
      for (auto [edge, end] = boost::out_edges(vertex, network_); edge != end; ++edge) {
        const Edge toward = boost::get(boost::edge_reverse, network_, *edge);
        const Vertex from = boost::source(toward, network_);
        const bool has_room = boost::get(boost::edge_residual_capacity, network_, toward) > 0;
        if (!has_room || reaches[from]) continue;
        reaches[from] = true;
        pending.push_back(from);
      }
    }
    return reaches;
  }

  const JointGraph& graph_;
  std::vector<ValueFacts> facts_;
  Network network_;
};

}  // namespace

std::vector<bool> values_kept(const JointGraph& graph) { return Cut(graph).take(); }

}  // namespace headroom::step
