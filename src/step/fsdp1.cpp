#include "step/fsdp1.h"

#include <algorithm>
#include <unordered_map>

namespace headroom::step {

namespace {

using memory::Category;
using model::Graph;
using model::Parameter;
using op::DType;
using op::Tensor;

// use_orig_params: parameters begin at multiples of this in the flat one.
constexpr int64_t kAlignmentBytes = 16;

enum class State : uint8_t { idle, forward, backward_pre, backward_post };

// A parameter's place in the flat one.
struct Place {
  uint32_t parameter = 0;
  int64_t offset = 0;  // in elements of the flat parameter
  int64_t elements = 0;
};

struct Unit {
  const ShardedUnit* what = nullptr;
  bool is_root = false;
  bool is_trained = false;
  DType type{};  // of the shard
  DType gathered_type{};
  int64_t elements = 0;  // of the flat parameter, padding included
  std::vector<Place> places;
  std::vector<int64_t> pieces;           // sizes of the flat parameter's parts, padding included
  std::vector<uint32_t> place_of_piece;  // kPadding where a part is padding
  Tensor shard;
  Tensor whole;                               // the leaf; its storage comes and goes
  uint32_t gather = 0;                        // the collective that filled it
  std::vector<Tensor> views;                  // by place
  Tensor gradient;                            // the rank's share
  std::vector<OptimizedParameter> optimized;  // views of the shard
  State state = State::idle;
  bool is_gathered = false;
  bool is_prefetched = false;
  bool needs_gather_in_backward = false;
  bool had_pre_backward = false;
  bool watches_inputs = false;
  std::vector<Tensor> held;     // leaves among the inputs, until the end of backward
  size_t inputs_left = 0;       // whose gradients are still to come
  std::optional<size_t> order;  // of its forward's end, among all units'
};
constexpr uint32_t kPadding = UINT32_MAX;

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What a node of the backward graph is waited for by.
struct Watch {
  op::NodeRef leaf;       // holds a leaf's node, which nothing else may hold yet
  uint64_t sequence = 0;  // others are recognised, not held: nodes hold what backward saved
  std::vector<Unit*> outputs_of;
  std::vector<Unit*> inputs_of;
};

class Fsdp1 final : public ShardedMethod {
 public:
  Fsdp1(const Graph& graph, const FsdpOptions& options, op::Eager& eager, Recorder& recorder)
      : ShardedMethod(graph, options, eager, recorder) {
    for (const ShardedUnit& what : wrapped()) {
      auto unit = std::make_unique<Unit>();
      unit->what = &what;
      lay_out(*unit);
      units_.push_back(std::move(unit));
    }
    units_.back()->is_root = true;
  }

  // What the first step lets go of comes back in the second.
  [[nodiscard]] bool is_steady_at_once() const override { return false; }

  // Unit by unit: its parameters come to the device, become one, and the rank keeps its share.
  std::vector<OptimizedParameter> construct(Frame& frame,
                                            std::vector<OptimizedParameter>) override {
    std::vector<OptimizedParameter> all;
    for (const auto& unit : units_) {
      if (unit->places.empty()) continue;
      recorder_.set_category(Category::parameter);
      {
        std::vector<Tensor> parts;
        for (const Place& place : unit->places) {
          parts.push_back(eager_.empty({place.elements}, unit->type));
        }
        const Tensor flat = eager_.empty({unit->elements}, unit->type);
        parts.clear();
        if (!options_.offload) unit->shard = eager_.empty({share_of(*unit)}, unit->type);
      }
      unit->whole = eager_.empty({unit->elements}, unit->gathered_type);
      unit->whole->requires_grad = unit->is_trained;
      eager_.release_storage(unit->whole);
      if (options_.offload) continue;
      make_optimized(*unit);
      all.insert(all.end(), unit->optimized.begin(), unit->optimized.end());
    }
    if (options_.wrap.adapters == WrapAdapters::ignored) construct_ignored(frame, all);
    return all;
  }

  // _reset_flat_param_grad_info_if_needed: shares go where no parameter has a gradient any more.
  void begin_forward(const MicroBatch& micro_batch, Frame&) override {
    reduces_ = options_.sync_each_batch || micro_batch.is_last;
    for (const auto& unit : units_) {
      const bool is_used = std::ranges::any_of(
          unit->optimized, [](const OptimizedParameter& p) { return bool(p.tensor->grad); });
      if (!is_used) unit->gradient = Tensor();
    }
  }

  void before_backward(op::Node& node) override {
    const auto at = watches_.find(&node);
    if (at == watches_.end()) return;
    const Watch watch = std::move(at->second);
    watches_.erase(at);
    if (!watch.leaf && watch.sequence != node.sequence) return;
    for (Unit* unit : watch.outputs_of) pre_backward(*unit);
    for (Unit* unit : watch.inputs_of) inputs_have_gradients(*unit);
  }

  void accumulated(const Tensor& leaf) override {
    if (std::ranges::find(ignored_, leaf) != ignored_.end()) {
      const int64_t bytes = leaf->grad.bytes();
      return recorder_.run_collective(op::OpKind::all_reduce, bytes, bytes);
    }
    for (const auto& unit : units_) {
      if (unit->whole.get() == leaf.get()) return post_backward(*unit);
    }
  }

  // The final callback: what is still gathered goes, and shares become the parameters' gradients.
  void end_backward() override {
    recorder_.await_all();
    watches_.clear();
    order_.clear();
    finish(*units_.back());  // the root's, as PyTorch lists them
    for (size_t i = 0; i + 1 < units_.size(); ++i) finish(*units_[i]);
  }

 private:
  void construct_ignored(Frame& frame, std::vector<OptimizedParameter>& all) {
    recorder_.set_category(Category::parameter);
    for (const Parameter& parameter : graph_.parameters) {
      if (!parameter.adapter) continue;
      Tensor whole = eager_.empty(parameter.shape, type_of(parameter));
      whole->is_parameter = true;
      whole->requires_grad = parameter.trainable;
      if (parameter.trainable) all.push_back(optimized_parameter(whole, parameter));
      ignored_.push_back(whole);
      frame[parameter.value] = std::move(whole);
    }
  }

  void finish(Unit& unit) {
    if (unit.places.empty()) return;
    reshard(unit, true);
    unit.state = State::idle;
    unit.order.reset();
    unit.needs_gather_in_backward = false;
    unit.had_pre_backward = false;
    unit.watches_inputs = false;
    unit.held.clear();
    for (OptimizedParameter& parameter : unit.optimized) {
      if (!unit.gradient) continue;
      parameter.tensor->grad =
          eager_.alias(unit.gradient, parameter.tensor.sizes(), parameter.tensor.strides());
      parameter.tensor->grad->base = Tensor();
    }
  }

  // Parameters one behind the other, each at a multiple of the alignment, the end at one of the
  // ranks. A unit of weights in a quantizer's own bytes is as long as they are (quant_storage).
  void lay_out(Unit& unit) const {
    const std::vector<uint32_t>& parameters = unit.what->parameters;
    if (parameters.empty()) return;
    unit.type = DType::u8;
    for (const uint32_t i : parameters) {
      unit.is_trained = unit.is_trained || graph_.parameters[i].trainable;
      const DType type = type_of(graph_.parameters[i]);
      if (op::is_floating(type)) unit.type = type;
    }
    const bool is_mixed = options_.compute && op::is_floating(unit.type);
    unit.gathered_type = is_mixed ? *options_.compute : unit.type;
    if (is_mixed && unit.is_trained) unit.type = DType::f32;
    const int64_t alignment = kAlignmentBytes / op::element_size(unit.gathered_type);
    for (const uint32_t i : parameters) {
      const Parameter& parameter = graph_.parameters[i];
      const DType own =
          op::is_floating(type_of(parameter)) ? unit.gathered_type : type_of(parameter);
      const int64_t bytes = op::product(parameter.shape) * op::element_size(own);
      const int64_t elements = rounded_up(bytes, op::element_size(unit.gathered_type)) /
                               op::element_size(unit.gathered_type);
      pad(unit, rounded_up(unit.elements, alignment));
      unit.place_of_piece.push_back(static_cast<uint32_t>(unit.places.size()));
      unit.pieces.push_back(elements);
      unit.places.push_back({i, unit.elements, elements});
      unit.elements += elements;
    }
    pad(unit, rounded_up(unit.elements, options_.ranks));
  }

  [[nodiscard]] int64_t share_of(const Unit& unit) const { return unit.elements / options_.ranks; }

  static void pad(Unit& unit, int64_t elements) {
    if (elements == unit.elements) return;
    unit.pieces.push_back(elements - unit.elements);
    unit.place_of_piece.push_back(kPadding);
    unit.elements = elements;
  }

  // The parameters of rank 0: those that begin in its share, the last one perhaps in part.
  void make_optimized(Unit& unit) {
    const int64_t share = share_of(unit);
    for (const Place& place : unit.places) {
      const Parameter& parameter = graph_.parameters[place.parameter];
      if (!parameter.trainable || place.offset >= share) continue;
      const int64_t elements = std::min(place.elements, share - place.offset);
      Tensor part = eager_.alias(unit.shard, {elements}, {1});
      part->base = Tensor();
      part->is_parameter = true;
      part->requires_grad = true;
      unit.optimized.push_back(optimized_parameter(std::move(part), parameter));
      unit.optimized.back().is_lm_head = false;  // its block is not its own (parallel_method.h)
    }
  }

  std::vector<Tensor> views_of(Unit& unit) {
    const std::vector<Tensor> parts = op::split(eager_, unit.whole, unit.pieces, 0);
    std::vector<Tensor> views(unit.places.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (unit.place_of_piece[i] == kPadding) continue;
      const Parameter& parameter = graph_.parameters[unit.places[unit.place_of_piece[i]].parameter];
      views[unit.place_of_piece[i]] = view_of(parts[i], parameter);
    }
    return views;
  }

  Tensor view_of(const Tensor& part, const Parameter& parameter) {
    const bool has_own_bytes = !op::is_floating(type_of(parameter));
    if (!has_own_bytes) return op::view(eager_, part, parameter.shape);
    Tensor view = eager_.alias(part, parameter.shape, op::contiguous_strides(parameter.shape));
    view->dtype = type_of(parameter);
    return view;
  }

  void show(const Unit& unit, Frame& frame) {
    for (size_t i = 0; i < unit.places.size(); ++i) {
      frame[graph_.parameters[unit.places[i].parameter].value] = unit.views[i];
    }
  }

  // What is gathered, in its type, where that is no block of the rank's own: pre_unshard in
  // torch/distributed/fsdp/_flat_param.py (2.13). Of mixed precision the low one is first, and what
  // comes from the host lives until it is cast.
  Tensor share_to_gather(const Unit& unit) {
    CategoryScope scope(recorder_, Category::temporary);
    const auto arrived = [&] {
      return options_.offload ? eager_.empty({share_of(unit)}, unit.type) : unit.shard;
    };
    if (unit.type == unit.gathered_type) return arrived();
    Tensor low = eager_.empty({share_of(unit)}, unit.gathered_type);  // _mp_shard
    eager_.kernel(op::OpKind::cast, 0, arrived().bytes(), low.bytes());
    return low;
  }

  // _FreeEventQueue: before a unit is gathered, the host waits for the oldest of two events.
  void wait_for_units_let_go() {
    constexpr size_t kMostInFlight = 2;
    if (let_go_ < kMostInFlight) return;
    recorder_.stream_got_on(kComputeStream, 1);
    --let_go_;
  }

  void gather(Unit& unit) {
    wait_for_units_let_go();
    if (unit.is_gathered) return;
    const StreamScope on_stream(recorder_, kGatherStream);
    const Tensor shard = share_to_gather(unit);
    CategoryScope scope(recorder_, Category::gathered);
    eager_.restore_storage(unit.whole);
    unit.gather = recorder_.begin_collective(
        op::OpKind::all_gather, unit.whole.bytes() / options_.ranks, unit.whole.bytes());
    unit.is_gathered = true;
  }

  void reshard(Unit& unit, bool lets_go) {
    if (lets_go && unit.is_gathered) {
      recorder_.use_on_stream(unit.whole, kComputeStream);
      eager_.release_storage(unit.whole);
      unit.is_gathered = false;
      ++let_go_;
      recorder_.let_go_of_unit();
    }
    unit.is_prefetched = false;
  }

  void pre_forward(size_t index, Frame& frame) override {
    Unit& unit = *units_[index];
    frame_ = &frame;
    if (unit.places.empty() || unit.state == State::backward_pre) return;
    unit.state = State::forward;
    if (!unit.is_prefetched) gather(unit);
    recorder_.await(unit.gather);
    unit.views = views_of(unit);
    show(unit, *frame_);
    if (!unit.is_trained && !unit.watches_inputs && eager_.grad_enabled()) watch_inputs(unit);
  }

  void post_forward(size_t index, Frame& frame) override {
    Unit& unit = *units_[index];
    if (unit.places.empty() || unit.state == State::backward_pre) return;
    // As in PyTorch, the unit that is first in order is never taken for one that has its place.
    if (unit.order.value_or(0) == 0) unit.order = order_.size();
    order_.push_back(&unit);
    reshard(unit, !unit.is_root);
    if (eager_.grad_enabled()) watch_outputs(unit, frame);
    unit.state = State::idle;
  }

  Watch& watch(const op::Edge& edge) {
    Watch& watch = watches_[edge.node.get()];
    if (!watch.leaf && watch.sequence != edge.node->sequence) watch = Watch();
    watch.sequence = edge.node->sequence;
    if (edge.node->variable) watch.leaf = edge.node;
    return watch;
  }

  void watch_outputs(Unit& unit, const Frame& frame) {
    unit.needs_gather_in_backward = false;
    unit.had_pre_backward = false;
    for (const model::ValueId id : unit.what->outputs) {
      if (id == model::kNoValue || !frame[id] || !frame[id].requires_grad()) continue;
      watch(eager_.gradient_edge(frame[id])).outputs_of.push_back(&unit);
      unit.needs_gather_in_backward = true;
    }
  }

  void watch_inputs(Unit& unit) {
    unit.inputs_left = 0;
    for (const model::ValueId id : unit.what->inputs) {
      if (id == model::kNoValue) continue;
      const Tensor& input = (*frame_)[id];
      if (!input || !input.requires_grad()) continue;
      watch(eager_.gradient_edge(input)).inputs_of.push_back(&unit);
      ++unit.inputs_left;
      if (!input->grad_fn) unit.held.push_back(input);
    }
    unit.watches_inputs = true;
  }

  void pre_backward(Unit& unit) {
    if (unit.had_pre_backward) return;
    unit.state = State::backward_pre;
    if (unit.needs_gather_in_backward && !unit.is_prefetched) gather_again(unit);
    if (unit.needs_gather_in_backward) recorder_.await(unit.gather);
    unit.needs_gather_in_backward = false;
    prefetch_before(unit);
    unit.had_pre_backward = true;
  }

  // The views of the forward are shown again, for a recomputation.
  void gather_again(Unit& unit) {
    gather(unit);
    show(unit, *frame_);
  }

  void prefetch_before(const Unit& unit) {
    if (unit.order.value_or(0) == 0) return;
    Unit& target = *order_[*unit.order - 1];
    if (!target.needs_gather_in_backward || target.is_prefetched) return;
    gather_again(target);
    target.is_prefetched = true;
  }

  void inputs_have_gradients(Unit& unit) {
    if (--unit.inputs_left > 0) return;
    unit.state = State::backward_post;
    reshard(unit, true);
  }

  void post_backward(Unit& unit) {
    unit.state = State::backward_post;
    if (!reduces_) return keep_whole(unit);
    Tensor gradient = std::move(unit.whole->grad);
    unit.whole->grad = Tensor();
    if (!gradient) return;
    reshard(unit, true);
    recorder_.recategorize(gradient, Category::gradient);
    const StreamScope on_stream(recorder_, kReduceStream);
    CategoryScope scope(recorder_, Category::gradient);
    Tensor share = eager_.empty({share_of(unit)}, gradient.dtype());
    eager_.kernel(op::OpKind::div, static_cast<double>(gradient.elements()), gradient.bytes(),
                  gradient.bytes());
    (void)recorder_.begin_collective(op::OpKind::reduce_scatter, gradient.bytes(), share.bytes());
    if (options_.replicas > 1) {
      (void)recorder_.begin_collective(op::OpKind::all_reduce, share.bytes(), share.bytes());
    }
    if (share.dtype() != unit.type) share = op::to(eager_, share, unit.type);
    if (options_.offload) return;  // copied to the host
    if (unit.gradient) {
      op::add_inplace(eager_, unit.gradient, share);
    } else {
      unit.gradient = std::move(share);
    }
  }

  // Under no_sync(): the next micro-batch's is added to it.
  void keep_whole(Unit& unit) {
    if (!unit.whole->grad) return;
    recorder_.recategorize(unit.whole->grad, Category::gradient);
    reshard(unit, true);
  }

  std::vector<std::unique_ptr<Unit>> units_;
  size_t let_go_ = 0;            // units, whose events the host has not waited for
  bool reduces_ = true;          // gradients, in this micro-batch's backward
  std::vector<Tensor> ignored_;  // adapters that are in no unit
  Frame* frame_ = nullptr;       // of the forward pass that runs or ran last
  std::vector<Unit*> order_;
  std::unordered_map<const op::Node*, Watch> watches_;
};

}  // namespace

std::unique_ptr<ParallelMethod> make_fsdp1(const Graph& graph, const FsdpOptions& options,
                                           op::Eager& eager, Recorder& recorder) {
  return std::make_unique<Fsdp1>(graph, options, eager, recorder);
}

}  // namespace headroom::step
