#include "step/ddp.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <span>
#include <unordered_map>

namespace headroom::step {

namespace {

using memory::Category;
using op::DType;
using op::Tensor;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr int64_t kBroadcastBytes = int64_t{250} << 20;  // broadcast_bucket_size
constexpr size_t kBroadcastsInFlight = 2;                // broadcast_coalesced

// compute_bucket_assignment_by_size: tensors of one type together, in their order, a group closed
// by the tensor that brings it to its limit. Of each type, the last limit holds for all groups that
// follow. Groups in the order in which they were closed, unclosed ones behind them.
using Groups = std::vector<std::vector<size_t>>;
Groups by_size(std::span<const Tensor> tensors, std::span<const int64_t> limits) {
  struct Open {
    std::vector<size_t> members;
    int64_t bytes = 0;
    size_t limit = 0;
  };
  std::map<DType, Open> open_groups;
  Groups groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Open& open = open_groups[tensors[i].dtype()];
    open.members.push_back(i);
    open.bytes += tensors[i].bytes();
    if (open.bytes < limits[open.limit]) continue;
    groups.push_back(std::move(open.members));
    open = {{}, 0, std::min(open.limit + 1, limits.size() - 1)};
  }
  for (auto& [type, open] : open_groups) {
    if (!open.members.empty()) groups.push_back(std::move(open.members));
  }
  return groups;
}

struct Bucket {
  Tensor contents;
  size_t variables = 0;
  size_t pending = 0;
};

struct Variable {
  Tensor parameter;
  size_t bucket = 0;
};

class Ddp final : public ParallelMethod {
 public:
  Ddp(const model::Graph& graph, const DdpOptions& options, op::Eager& eager, Recorder& recorder)
      : graph_(graph), options_(options), eager_(eager), recorder_(recorder) {}

  [[nodiscard]] bool keeps_parameters_whole() const override { return true; }
  [[nodiscard]] bool is_steady_at_once() const override { return options_.find_unused_parameters; }

  std::vector<OptimizedParameter> construct(Frame& frame,
                                            std::vector<OptimizedParameter> whole) override {
    std::vector<Tensor> states;
    for (const model::Parameter& parameter : graph_.parameters) {
      if (!parameter.tied_to) states.push_back(frame[parameter.value]);
    }
    for (Tensor& buffer : registered_buffers(frame)) states.push_back(std::move(buffer));
    broadcast(states);
    for (const OptimizedParameter& parameter : whole) {
      index_of_[parameter.tensor.get()] = variables_.size();
      variables_.push_back({parameter.tensor});
    }
    make_first_buckets();
    if (options_.find_unused_parameters) {
      CategoryScope scope(recorder_, Category::communication);
      used_ = eager_.empty({static_cast<int64_t>(variables_.size())}, DType::i32);
    }
    return whole;
  }

  void begin_forward(const MicroBatch& micro_batch, Frame& frame) override {
    is_reduced_ = micro_batch.is_last;
    if (ready_.size() == variables_.size() && !has_rebuilt_) rebuild();
    if (micro_batch.is_first) broadcast(registered_buffers(frame));
  }

  void end_forward(Frame& frame) override {
    if (options_.find_unused_parameters) copy_outputs(frame);
  }

  void accumulated(const Tensor& leaf) override {
    const auto at = index_of_.find(leaf.get());
    if (at == index_of_.end() || !is_reduced_) return;
    if (!has_rebuilt_ && !options_.find_unused_parameters) ready_.push_back(at->second);
    Bucket& bucket = buckets_[variables_[at->second].bucket];
    const int64_t bytes = leaf->grad.bytes();
    eager_.kernel(op::OpKind::mul, static_cast<double>(leaf.elements()), bytes, bytes);
    if (options_.gradient_as_bucket_view) {
      leaf->grad = eager_.alias(bucket.contents, leaf.sizes(), leaf.strides());
      leaf->grad->base = Tensor();
    }
    --bucket.pending;
    begin_reductions();
  }

  // finalize_backward: averages go back into the gradients.
  void end_backward() override {
    if (!is_reduced_) return;
    recorder_.await_all();
    next_bucket_ = 0;
    for (Bucket& bucket : buckets_) {
      const bool is_whole = bucket.pending == 0;
      bucket.pending = bucket.variables;
      if (!is_whole || options_.gradient_as_bucket_view) continue;
      eager_.kernel(op::OpKind::copy, 0, bucket.contents.bytes(), bucket.contents.bytes());
    }
  }

 private:
  // Buckets go in their order, each when it is full and those before it are (mark_bucket_ready).
  void begin_reductions() {
    for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0; ++next_bucket_) {
      const int64_t bytes = buckets_[next_bucket_].contents.bytes();
      (void)recorder_.begin_collective(op::OpKind::all_reduce, bytes, bytes);
    }
  }

  // A quantizer's tables are buffers to us, but none that a module has registered.
  std::vector<Tensor> registered_buffers(const Frame& frame) const {
    std::vector<bool> is_table(graph_.buffers.size());
    for (const model::Parameter& parameter : graph_.parameters) {
      if (!parameter.loading) continue;
      for (const uint32_t table : parameter.loading->tables) is_table[table] = true;
    }
    std::vector<Tensor> buffers;
    for (size_t i = 0; i < is_table.size(); ++i) {
      if (!is_table[i]) buffers.push_back(frame[graph_.buffers[i].value]);
    }
    return buffers;
  }

  void broadcast(const std::vector<Tensor>& tensors) {
    CategoryScope scope(recorder_, Category::communication);
    std::deque<Tensor> in_flight;
    Groups groups = by_size(tensors, std::span(&kBroadcastBytes, 1));
    std::ranges::sort(groups, {}, [](const std::vector<size_t>& group) { return group[0]; });
    for (const std::vector<size_t>& group : groups) {
      if (in_flight.size() == kBroadcastsInFlight) in_flight.pop_front();
      if (group.size() == 1) {
        in_flight.emplace_back();
        continue;
      }
      int64_t elements = 0;
      for (const size_t i : group) elements += tensors[i].elements();
      const Tensor& together =
          in_flight.emplace_back(eager_.empty({elements}, tensors[group[0]].dtype()));
      eager_.kernel(op::OpKind::cat, 0, together.bytes(), together.bytes());
    }
    while (!in_flight.empty()) in_flight.pop_front();
  }

  // In the order of the parameters, and the last ones first, as backward is expected to go.
  void make_first_buckets() {
    std::vector<int64_t> limits{kNoLimit};
    if (options_.find_unused_parameters) {
      limits = {options_.first_bucket_bytes, options_.bucket_bytes};
    }
    std::vector<Tensor> tensors;
    for (const Variable& variable : variables_) tensors.push_back(variable.parameter);
    Groups groups = by_size(tensors, limits);
    std::ranges::sort(groups, {}, [](const std::vector<size_t>& group) { return group[0]; });
    std::ranges::reverse(groups);
    make_buckets(groups);
  }

  // In the order in which gradients became ready.
  void rebuild() {
    has_rebuilt_ = true;
    std::vector<Tensor> tensors;
    for (const size_t i : ready_) tensors.push_back(variables_[i].parameter);
    const std::vector<int64_t> limits{options_.first_bucket_bytes, options_.bucket_bytes};
    Groups groups = by_size(tensors, limits);
    for (std::vector<size_t>& group : groups) {
      for (size_t& i : group) i = ready_[i];
    }
    make_buckets(groups);
  }

  void make_buckets(const Groups& groups) {
    buckets_.clear();
    CategoryScope scope(
        recorder_, options_.gradient_as_bucket_view ? Category::gradient : Category::communication);
    for (const std::vector<size_t>& group : groups) {
      int64_t elements = 0;
      for (const size_t i : group) {
        variables_[i].bucket = buckets_.size();
        elements += variables_[i].parameter.elements();
      }
      const DType type = variables_[group[0]].parameter.dtype();
      buckets_.push_back({eager_.empty({elements}, type), group.size(), group.size()});
    }
  }

  // _DDPSink, through which backward begins.
  void copy_outputs(Frame& frame) {
    std::vector<model::ValueId> ids;
    for (const model::ValueId id : {graph_.loss, graph_.logits}) ids.push_back(id);
    ids.insert(ids.end(), graph_.outputs.begin(), graph_.outputs.end());
    std::erase_if(ids, [&](model::ValueId id) {
      return id == model::kNoValue || !frame[id] || !frame[id].requires_grad();
    });
    std::vector<Tensor> inputs, outputs;
    for (const model::ValueId id : ids) inputs.push_back(frame[id]);
    {
      op::GradMode no_grad(eager_, false);
      for (const Tensor& input : inputs) outputs.push_back(op::clone(eager_, input));
    }
    op::Node* node = eager_.history("_DDPSinkBackward", inputs, outputs);
    if (node == nullptr) return;
    node->apply = [](op::Eager&, op::Node&, op::Grads& grads, op::Grads& results) {
      for (size_t i = 0; i < grads.size(); ++i) results[i] = grads[i];
    };
    for (size_t i = 0; i < ids.size(); ++i) frame[ids[i]] = outputs[i];
  }

  const model::Graph& graph_;
  const DdpOptions options_;
  op::Eager& eager_;
  Recorder& recorder_;
  std::vector<Variable> variables_;
  std::unordered_map<const op::TensorImpl*, size_t> index_of_;  // into variables_
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;     // to be reduced
  Tensor used_;                // local_used_map_dev_
  std::vector<size_t> ready_;  // variables, as their gradients came in the first step
  bool is_reduced_ = true;     // in the backward pass that runs or comes next
  bool has_rebuilt_ = false;
};

}  // namespace

std::unique_ptr<ParallelMethod> make_ddp(const model::Graph& graph, const DdpOptions& options,
                                         op::Eager& eager, Recorder& recorder) {
  return std::make_unique<Ddp>(graph, options, eager, recorder);
}

}  // namespace headroom::step
