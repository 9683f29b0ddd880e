#include "step/fsdp2.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

namespace headroom::step {

namespace {

using memory::Category;
using model::Graph;
using model::Parameter;
using op::DType;
using op::Tensor;

enum class State : uint8_t { idle, forward, pre_backward, post_backward };

struct ShardedParameter {
  uint32_t index = 0;  // into Graph::parameters
  int64_t share = 0;   // elements of a rank, padded
  DType type{};        // of the shard
  DType gathered_type{};
  op::Dims rows;  // of the shard
  Tensor shard;   // as the optimizer sees it; nothing where it is the host's
  Tensor whole;   // its storage comes and goes
  Tensor leaf;    // the parameter, a view of it
  // Of micro-batches that were not reduced, in the type of reductions, where it is another.
  Tensor added_up;
};

// What a unit's forward takes in place of an input, so that backward tells when it has run.
struct WrappedInput {
  model::ValueId value = 0;
  Tensor original;
  Tensor wrapped;
};

struct Unit;

// A module on which fully_shard was called last, around its units, which share what is here: one of
// each chunk of the model.
struct Root {
  std::vector<Unit*> units;           // in PyTorch's order, the root's own first
  std::vector<Unit*> order;           // of forwards
  Tensor copied;                      // the buffer whose copies were made last in forward
  Tensor reduced;                     // the input of the latest reduction
  std::optional<uint32_t> reduction;  // the collective that takes it; nothing of one rank alone
};

struct Unit {
  const ShardedUnit* what = nullptr;
  Root* root = nullptr;
  int64_t ranks = 1;  // that it is divided among
  RankGroup group;    // these, where they are not all that share what is trained
  std::vector<ShardedParameter> parameters;
  int64_t gathered_bytes = 0;       // of a rank's share, of all parameters
  int64_t cast_bytes = 0;           // of those that are cast to be gathered
  Tensor gathered;                  // the buffer, before it is copied out
  uint32_t gather = 0;              // the collective that fills it
  Tensor all_reduced;               // among replicas, before it is cast, to the end of backward
  Tensor partial;                   // of micro-batches that replicas have not reduced among them
  std::vector<WrappedInput> casts;  // before they are wrapped
  std::vector<WrappedInput> inputs;
  std::vector<size_t> places;  // in the order of forwards, one for each
  State state = State::idle;
  bool is_asked_for = false;  // of one rank alone, which gathers nothing
  bool is_whole = false;
  [[nodiscard]] bool is_root() const { return root->units.front() == this; }
};

class Fsdp2 final : public ShardedMethod {
 public:
  Fsdp2(const Graph& graph, const FsdpOptions& options, op::Eager& eager, Recorder& recorder)
      : ShardedMethod(graph, options, eager, recorder) {
    for (uint32_t chunk = 0; chunk <= wrapped().back().chunk; ++chunk) {
      roots_.push_back(std::make_unique<Root>());
    }
    current_ = roots_.front().get();
    for (const ShardedUnit& what : wrapped()) {
      auto unit = std::make_unique<Unit>();
      unit->what = &what;
      unit->root = roots_[what.chunk].get();
      unit->ranks = options.ranks;
      if (what.is_experts) {
        unit->ranks /= options.expert_ranks;
        unit->group = {static_cast<int32_t>(unit->ranks),
                       static_cast<int32_t>(options.expert_ranks)};
      }
      units_.push_back(std::move(unit));
    }
    // The last ones are the roots', and come first.
    const size_t inner = units_.size() - roots_.size();
    for (size_t i = inner; i < units_.size(); ++i) units_[i]->root->units = {units_[i].get()};
    for (size_t i = 0; i < inner; ++i) units_[i]->root->units.push_back(units_[i].get());
  }

  std::vector<OptimizedParameter> construct(Frame& frame,
                                            std::vector<OptimizedParameter>) override {
    std::vector<OptimizedParameter> all;
    for (const auto& unit : units_) {
      for (const uint32_t index : unit->what->parameters) construct_parameter(*unit, index, frame);
      for (const ShardedParameter& parameter : unit->parameters) {
        const Parameter& of = graph_.parameters[parameter.index];
        if (!of.trainable || options_.offload) continue;
        all.push_back(optimized_parameter(parameter.shard, of));
        all.back().is_lm_head = false;  // its gradient's block is not its own (parallel_method.h)
      }
    }
    return all;
  }

  void begin_forward(const MicroBatch& micro_batch, Frame&) override {
    const bool is_due = options_.sync_each_batch || micro_batch.is_last;
    reduces_ = !options_.in_pipeline && (is_due || options_.defers_replicas);
    among_replicas_ = options_.replicas > 1 && is_due;
  }

  void before_backward(op::Node& node) override {
    is_backward_ = true;
    const auto at = watches_.find(&node);
    if (at == watches_.end() || at->second.sequence != node.sequence) return;
    const std::vector<Unit*> units = std::move(at->second.units);
    watches_.erase(at);
    for (Unit* unit : units) pre_backward(*unit);
  }

  void accumulated(const Tensor& leaf) override {
    recorder_.recategorize(leaf->grad, Category::gradient);
  }

  void end_backward() override {
    for (Unit* unit : current_->units) finish(*unit);
    is_backward_ = false;
    if (!options_.in_pipeline) settle();
  }

  // schedules.py's actions UNSHARD, RESHARD and REDUCE_GRAD.
  void gather_chunk(uint32_t chunk) override {
    for (Unit* unit : roots_[chunk]->units) gather(*unit, kComputeStream);
  }

  void begin_pass(uint32_t chunk) override {
    current_ = roots_[chunk].get();
    for (Unit* unit : current_->units) copy_out(*unit);
  }

  void let_go_of_chunk(uint32_t chunk) override {
    for (Unit* unit : roots_[chunk]->units) let_go(*unit);
  }

  void reduce_chunk(uint32_t chunk) override {
    current_ = roots_[chunk].get();
    end_passes();
  }

  // stage.py's perform_reduce_grad: every unit's post_backward by hand.
  void end_passes() override {
    if (!options_.in_pipeline) return;
    reduces_ = true;
    for (Unit* unit : current_->units) post_backward(*unit);
    end_backward();
    settle();
    reduces_ = false;
  }

 private:
  void await_reduction(const Root& root) {
    if (root.reduced && root.reduction) recorder_.await(*root.reduction);
  }

  // All that was reduced is there, and nothing waits for a backward pass. Another chunk may be
  // being gathered meanwhile.
  void settle() {
    if (roots_.size() == 1) {
      recorder_.await_all();
    } else {
      await_reduction(*current_);
    }
    current_->order.clear();
    std::erase_if(watches_,
                  [&](const auto& watch) { return watch.second.units.front()->root == current_; });
    current_->reduced = Tensor();
  }

  void finish(Unit& unit) {
    if (unit.state != State::post_backward) post_backward(unit);
    unit.state = State::idle;
    unit.places.clear();
    unit.casts.clear();
    unit.inputs.clear();
    unit.all_reduced = Tensor();
    unit.gathered = Tensor();  // for a backward that did not come
  }

  void construct_parameter(Unit& unit, uint32_t index, Frame& frame) {
    const Parameter& parameter = graph_.parameters[index];
    recorder_.set_category(Category::parameter);
    ShardedParameter made;
    made.index = index;
    made.type = made.gathered_type = type_of(parameter);
    if (options_.compute && op::is_floating(made.type)) {
      made.gathered_type = *options_.compute;
      if (parameter.trainable) made.type = DType::f32;
    }
    const Tensor loaded = eager_.empty(parameter.shape, made.type);
    op::Dims rows = parameter.shape;
    rows[0] = (rows[0] + unit.ranks - 1) / unit.ranks;
    made.share = op::product(rows);
    made.rows = std::move(rows);
    if (!options_.offload) {
      made.shard = eager_.empty(made.rows, made.type);
      made.shard->is_parameter = true;
      made.shard->requires_grad = parameter.trainable;
    }
    // What is cast before it is gathered reads as if it were not (torchao's Float8Tensor).
    const DType element = parameter.float8 ? DType::f8 : made.gathered_type;
    made.whole = eager_.empty({made.share * unit.ranks}, element);
    eager_.release_storage(made.whole);
    made.leaf = eager_.alias(made.whole, parameter.shape, op::contiguous_strides(parameter.shape));
    made.leaf->base = Tensor();
    made.leaf->dtype = made.gathered_type;
    made.leaf->requires_grad = parameter.trainable;
    frame[parameter.value] = made.leaf;
    const int64_t bytes = made.share * op::element_size(element);
    unit.gathered_bytes += bytes;
    if (made.type != element) unit.cast_bytes += bytes;
    unit.parameters.push_back(std::move(made));
  }

  // foreach_all_gather. What a schedule asks for is on the stream of what is computed
  // (get_all_gather_streams).
  void gather(Unit& unit, uint32_t stream = kGatherStream) {
    if (unit.gathered || unit.is_whole || unit.parameters.empty()) return;
    unit.is_asked_for = unit.ranks == 1;
    if (unit.is_asked_for) return;
    const StreamScope on_stream(recorder_, stream);
    CategoryScope scope(recorder_, Category::gathered);
    const std::vector<Tensor> shares = shares_to_gather(unit);
    unit.gathered = eager_.empty({unit.gathered_bytes * unit.ranks}, DType::u8);
    unit.gather = recorder_.begin_collective(op::OpKind::all_gather, unit.gathered_bytes,
                                             unit.gathered.bytes(), unit.group);
  }

  // What is copied into the buffer, where that is no block of the rank's own: all that is cast in
  // one (_get_param_all_gather_inputs), or of the host's each for itself
  // (FSDPParam.all_gather_inputs).
  std::vector<Tensor> shares_to_gather(const Unit& unit) {
    CategoryScope temporary(recorder_, Category::temporary);
    std::vector<Tensor> shares;
    if (options_.offload) {
      for (const ShardedParameter& parameter : unit.parameters) {
        Tensor arrived = eager_.empty({parameter.share}, parameter.type);
        if (parameter.type != parameter.gathered_type) {
          arrived = op::to(eager_, arrived, parameter.gathered_type);
        }
        shares.push_back(std::move(arrived));
      }
    } else if (unit.cast_bytes > 0) {
      shares.push_back(eager_.empty({unit.cast_bytes}, DType::u8));
      eager_.kernel(op::OpKind::cast, 0, 2 * unit.cast_bytes, unit.cast_bytes);
    }
    return shares;
  }

  // wait_for_unshard
  void copy_out(Unit& unit) {
    if (!unit.gathered && !unit.is_asked_for) return;
    // The last unit's buffer stays until this function is done, as a variable of Python's does.
    const Tensor before = unit.root->copied;
    if (unit.state == State::forward) unit.root->copied = Tensor();
    unit.is_whole = true;
    if (std::exchange(unit.is_asked_for, false)) return copy_own(unit);
    CategoryScope scope(recorder_, Category::gathered);
    for (const ShardedParameter& parameter : unit.parameters) {
      eager_.restore_storage(parameter.whole);
    }
    recorder_.await(unit.gather);
    eager_.kernel(op::OpKind::copy, 0, unit.gathered.bytes(), unit.gathered.bytes());
    if (unit.state == State::forward) unit.root->copied = unit.gathered;
    unit.gathered = Tensor();
  }

  // Of one rank alone: each parameter is copied by itself, cast or from the host.
  void copy_own(const Unit& unit) {
    for (const ShardedParameter& parameter : unit.parameters) {
      Tensor share = parameter.shard;
      if (options_.offload) share = eager_.empty(parameter.rows, parameter.type);
      if (parameter.type != parameter.gathered_type) {
        share = op::to(eager_, share, parameter.gathered_type);
      }
      CategoryScope scope(recorder_, Category::gathered);
      eager_.restore_storage(parameter.whole);
      eager_.kernel(op::OpKind::copy, 0, parameter.whole.bytes(), parameter.whole.bytes());
    }
  }

  void let_go(Unit& unit) {
    if (!unit.is_whole) return;
    for (const ShardedParameter& parameter : unit.parameters) {
      eager_.release_storage(parameter.whole);
    }
    unit.is_whole = false;
  }

  void pre_forward(size_t index, Frame& frame) override {
    Unit& unit = *units_[index];
    const bool is_again = unit.state == State::pre_backward;
    if (!is_again) unit.state = State::forward;
    if (!is_again) cast_inputs(unit, frame);
    gather(unit);
    copy_out(unit);
    if (!is_again && eager_.grad_enabled() && !unit.parameters.empty()) wrap_inputs(unit, frame);
  }

  // MixedPrecisionPolicy's cast_forward_inputs.
  void cast_inputs(Unit& unit, Frame& frame) {
    unit.casts.clear();
    if (!options_.compute || unit.is_root()) return;
    for (const model::ValueId id : unit.what->inputs) {
      if (id == model::kNoValue || !frame[id] || !op::is_floating(frame[id].dtype())) continue;
      if (frame[id].dtype() == *options_.compute) continue;
      const Tensor original = frame[id];
      frame[id] = op::to(eager_, original, *options_.compute);
      unit.casts.push_back({id, original, frame[id]});
    }
  }

  // What came in is itself again for who called.
  static void restore(std::vector<WrappedInput>& inputs, Frame& frame) {
    for (WrappedInput& input : inputs) {
      if (frame[input.value].get() == input.wrapped.get()) frame[input.value] = input.original;
    }
    inputs.clear();
  }

  // RegisterPostBackwardFunction: its backward runs when all that took the inputs has run.
  void wrap_inputs(Unit& unit, Frame& frame) {
    std::vector<Tensor> inputs, outputs;
    unit.inputs.clear();
    for (const model::ValueId id : unit.what->inputs) {
      if (id == model::kNoValue || !frame[id] || !frame[id].requires_grad()) continue;
      const Tensor& input = frame[id];
      inputs.push_back(input);
      outputs.push_back(eager_.alias(input, input.sizes(), input.strides()));
      unit.inputs.push_back({id, input, outputs.back()});
    }
    if (inputs.empty()) return;
    op::Node* node = eager_.history("RegisterPostBackwardFunctionBackward", inputs, outputs);
    node->apply = [this, of = &unit](op::Eager& eager, op::Node& called, op::Grads& grads,
                                     op::Grads& results) {
      // As to every function of Python's, zeros come where nothing flowed back.
      for (size_t i = 0; i < grads.size(); ++i) {
        const op::GradientType& type = called.outputs[i];
        if (!grads[i]) grads[i] = op::zeros(eager, type.sizes, type.dtype);
      }
      post_backward(*of);
      for (size_t i = 0; i < grads.size(); ++i) results[i] = grads[i];
    };
    for (size_t i = 0; i < outputs.size(); ++i) frame[unit.inputs[i].value] = outputs[i];
  }

  void post_forward(size_t index, Frame& frame) override {
    Unit& unit = *units_[index];
    if (unit.state == State::pre_backward) return;
    restore(unit.inputs, frame);
    restore(unit.casts, frame);
    if (!is_backward_) {
      const bool stays = unit.is_root() || unit.what->stays_whole || options_.in_pipeline;
      if (!stays) let_go(unit);
      unit.places.push_back(unit.root->order.size());
      unit.root->order.push_back(&unit);
    }
    if (eager_.grad_enabled()) watch_outputs(unit, frame);
    unit.state = State::idle;
    // The outermost whose forward runs lets go of it (iter_forward_root): a part that a checkpoint
    // runs again has no other around it.
    if (unit.is_root() || is_backward_) unit.root->copied = Tensor();
  }

  void watch_outputs(Unit& unit, const Frame& frame) {
    for (const model::ValueId id : unit.what->outputs) {
      if (id == model::kNoValue || !frame[id] || !frame[id].requires_grad()) continue;
      const op::Edge edge = eager_.gradient_edge(frame[id]);
      Watch& watch = watches_[edge.node.get()];
      if (watch.sequence != edge.node->sequence) watch = {edge.node->sequence, {}};
      if (edge.node->variable) watch.accumulates = edge.node;
      watch.units.push_back(&unit);
    }
  }

  void pre_backward(Unit& unit) {
    if (unit.state == State::pre_backward) return;
    unit.state = State::pre_backward;
    gather(unit);
    copy_out(unit);
    if (unit.places.empty()) return;
    const size_t place = unit.places.back();
    unit.places.pop_back();
    if (place > 0) gather(*unit.root->order[place - 1]);
  }

  void post_backward(Unit& unit) {
    unit.state = State::post_backward;
    if (unit.parameters.empty()) return;  // no group of parameters
    std::vector<ShardedParameter*> with_gradient;
    int64_t share = 0;
    DType type{};
    for (ShardedParameter& parameter : unit.parameters) {
      add_up(parameter);
      const Tensor& gradient = parameter.added_up ? parameter.added_up : parameter.leaf->grad;
      if (!gradient) continue;
      with_gradient.push_back(&parameter);
      share += parameter.share;
      type = gradient.dtype();
    }
    if (reduces_ || !options_.in_pipeline) let_go(unit);
    if (!reduces_) return widen(with_gradient);
    await_reduction(*unit.root);
    unit.root->reduced = Tensor();
    if (!with_gradient.empty()) reduce(unit, with_gradient, share, options_.reduce.value_or(type));
  }

  // accumulate_unsharded_grad_if_needed
  void add_up(ShardedParameter& parameter) {
    if (!parameter.added_up || !parameter.leaf->grad) return;
    op::add_inplace(eager_, parameter.added_up, parameter.leaf->grad);
    parameter.leaf->grad = Tensor();
  }

  // to_accumulated_grad_if_needed
  void widen(const std::vector<ShardedParameter*>& parameters) {
    CategoryScope scope(recorder_, Category::gradient);
    for (ShardedParameter* parameter : parameters) {
      Tensor& gradient = parameter->leaf->grad;
      if (!gradient || !options_.reduce || gradient.dtype() == *options_.reduce) continue;
      parameter->added_up = op::to(eager_, gradient, *options_.reduce);
      gradient = Tensor();
    }
  }

  // foreach_reduce
  void reduce(Unit& unit, const std::vector<ShardedParameter*>& with_gradient, int64_t share,
              DType type) {
    {
      CategoryScope scope(recorder_, Category::communication);
      Tensor& reduced = unit.root->reduced;
      reduced = eager_.empty({share * unit.ranks}, type);
      eager_.kernel(op::OpKind::copy, 0, reduced.bytes(), reduced.bytes());
    }
    for (ShardedParameter* parameter : with_gradient) {
      parameter->leaf->grad = Tensor();
      parameter->added_up = Tensor();
    }
    CategoryScope scope(recorder_, Category::gradient);
    Tensor output = reduced_share(unit, share, type, with_gradient.front()->type);
    if (options_.offload || !output) return;  // copied to the host, or to be reduced later
    for (ShardedParameter* parameter : with_gradient) {
      Tensor view = eager_.alias(output, parameter->rows, op::contiguous_strides(parameter->rows));
      view->base = Tensor();
      if (parameter->shard->grad) {
        op::add_inplace(eager_, parameter->shard->grad, view);
      } else {
        parameter->shard->grad = std::move(view);
      }
    }
  }

  // Nothing, where replicas' shares are added up first.
  Tensor reduced_share(Unit& unit, int64_t share, DType type, DType kept) {
    const bool is_cast = type != kept;
    const bool has_replicas = options_.replicas > 1;
    Tensor output;
    {
      const StreamScope on_stream(recorder_, kReduceStream);
      CategoryScope scope(recorder_,
                          is_cast && has_replicas ? Category::communication : Category::gradient);
      output = eager_.empty({share}, type);
    }
    if (unit.ranks == 1) {
      unit.root->reduction.reset();
      divide_own(output);
    } else {
      unit.root->reduction = recorder_.begin_collective(
          op::OpKind::reduce_scatter, unit.root->reduced.bytes(), output.bytes(), unit.group);
    }
    if (has_replicas && unit.partial) {
      const Tensor partial = std::exchange(unit.partial, Tensor());
      Tensor& into = among_replicas_ ? output : unit.partial;
      if (!among_replicas_) unit.partial = partial;
      op::add_inplace(eager_, into, among_replicas_ ? partial : output);
      if (!among_replicas_) return {};
    } else if (has_replicas && !among_replicas_) {
      unit.partial = output;
      return {};
    }
    if (has_replicas) {
      (void)recorder_.begin_collective(op::OpKind::all_reduce, output.bytes(), output.bytes());
      unit.all_reduced = output;
    }
    if (!is_cast) return output;
    const StreamScope on_stream(recorder_, has_replicas ? kAllReduceStream : kReduceStream);
    return op::to(eager_, output, kept);
  }

  // What one rank alone has is divided by how many batches it comes from, into a block of its own.
  void divide_own(const Tensor& output) {
    const StreamScope on_stream(recorder_, kReduceStream);
    CategoryScope scope(recorder_, Category::temporary);
    const Tensor divided = eager_.empty(output.sizes(), output.dtype());
    eager_.kernel(op::OpKind::div, 0, output.bytes(), divided.bytes());
    eager_.kernel(op::OpKind::copy, 0, divided.bytes(), output.bytes());
  }

  // Which units' forward a node made an output of; nodes are recognised, and held alone where
  // nobody else does: an output that asked for a gradient was made by none.
  struct Watch {
    uint64_t sequence = 0;
    std::vector<Unit*> units;
    op::NodeRef accumulates = {};
  };

  std::vector<std::unique_ptr<Root>> roots_;  // by chunk
  std::vector<std::unique_ptr<Unit>> units_;
  Root* current_ = nullptr;  // whose pass runs
  std::unordered_map<const op::Node*, Watch> watches_;
  bool is_backward_ = false;
  bool reduces_ = true;         // gradients, in this micro-batch's backward
  bool among_replicas_ = true;  // them, too, where there are some
};

}  // namespace

std::unique_ptr<ParallelMethod> make_fsdp2(const Graph& graph, const FsdpOptions& options,
                                           op::Eager& eager, Recorder& recorder) {
  return std::make_unique<Fsdp2>(graph, options, eager, recorder);
}

}  // namespace headroom::step
