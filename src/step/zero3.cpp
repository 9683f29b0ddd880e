#include "step/zero3.h"

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "step/sharded_method.h"
#include "step/zero3_coordinator.h"
#include "step/zero3_modules.h"

namespace headroom::step {

namespace {

using memory::Category;
using model::Graph;
using model::Parameter;
using op::DType;
using op::Tensor;

// What the optimizer steps together.
struct SubGroup {
  std::vector<size_t> parameters;
  int64_t begin = 0;  // in the flat blocks
  int64_t elements = 0;
  bool decays = true;
  Tensor master;
};

// What a module's forward takes in place of an input, so that backward tells when it has run.
struct WrappedInput {
  model::ValueId value = model::kNoValue;
  Tensor original;
  Tensor wrapped;
};

// One of zero3_modules().
struct Module {
  Zero3Module what;
  std::vector<WrappedInput> inputs;  // while it runs
  int64_t awaited = 0;               // inputs whose gradients are to come: ds_grads_remaining
};

std::vector<std::vector<size_t>> parameters_of(const std::vector<Module>& modules) {
  std::vector<std::vector<size_t>> parameters;
  for (const Module& module : modules) parameters.push_back(module.what.parameters);
  return parameters;
}

class Zero3 final : public ParallelMethod {
 public:
  Zero3(const Graph& graph, const ZeroOptions& options, op::Eager& eager, Recorder& recorder)
      : graph_(graph),
        options_(options),
        eager_(eager),
        recorder_(recorder),
        marks_(graph.instructions.size()),
        parameters_({.ranks = options.ranks,
                     .stream = options.overlap_comm ? kGatherStream : 0,
                     .on_host = options.offload_parameters,
                     .persistent = options.persistence_elements},
                    eager, recorder) {
    for (size_t i = 0; i < graph.parameters.size(); ++i) {
      if (!graph.parameters[i].tied_to) index_of_[i] = index_of_.size();
    }
    for (Zero3Module& what : zero3_modules(graph)) {
      for (size_t& parameter : what.parameters) parameter = index_of_.at(parameter);
      marks_[what.first].before = true;
      marks_[what.last].after = true;
      beginning_[what.first].push_back(modules_.size());
      ending_[what.last].push_back(modules_.size());
      modules_.push_back({std::move(what), {}, 0});
    }
  }

  [[nodiscard]] bool is_steady_at_once() const override { return false; }
  [[nodiscard]] bool clips_gradients() const override { return true; }
  [[nodiscard]] const InstructionMarks* marks() const override { return &marks_; }

  std::vector<OptimizedParameter> construct(Frame& frame,
                                            std::vector<OptimizedParameter>) override {
    make_parameters(frame);
    flatten_parts();
    std::vector<OptimizedParameter> masters = make_masters();
    {
      const CategoryScope scope(recorder_, Category::communication);
      bucket_ = eager_.empty({options_.reduce_bucket_elements}, options_.weights);
    }
    if (!options_.offload_optimizer) {
      const CategoryScope scope(recorder_, Category::gradient);
      gradients_ = eager_.empty({trained_elements()}, options_.weights);
    }
    hold_on_host();
    gather_each();
    coordinator_.emplace(Zero3Limits{.prefetch_elements = options_.prefetch_elements,
                                     .most_live_elements = options_.most_live_elements,
                                     .reuse_elements = options_.reuse_elements},
                         parameters_of(modules_), parameters_);
    return masters;
  }

  void begin_forward(const MicroBatch& micro_batch, Frame&) override {
    is_first_ = micro_batch.is_first;
    is_last_ = micro_batch.is_last;
    coordinator_->begin_pass();
  }

  void before(uint32_t instruction, Frame& frame) override {
    for (const size_t index : beginning_.at(instruction)) {
      if (is_outside(index)) continue;
      coordinator_->begin_forward(index, eager_.thread() == op::ThreadKind::autograd);
      if (eager_.grad_enabled()) wrap_inputs(index, frame);
    }
  }

  void after(uint32_t instruction, Frame& frame) override {
    for (const size_t index : std::views::reverse(ending_.at(instruction))) {  // the inner before
      if (is_outside(index)) continue;
      restore_inputs(modules_[index], frame);
      coordinator_->end_forward(index);
      if (eager_.grad_enabled()) watch_outputs(index, frame);
    }
  }

  void before_reentrant(const model::Region& region, Frame& frame) override {
    const auto index = module_of(region);
    if (!index) return;
    outside_.insert(*index);
    wrap_inputs(*index, frame);
  }
  void after_reentrant(const model::Region& region, Frame& frame) override {
    if (const auto index = module_of(region)) watch_outputs(*index, frame);
  }

  void before_backward(op::Node& node) override {
    const auto at = watches_.find(&node);
    if (at == watches_.end() || at->second.sequence != node.sequence) return;
    const std::vector<size_t> modules = std::move(at->second.modules);
    watches_.erase(at);
    // The outer begin before the inner.
    for (const size_t module : std::views::reverse(modules)) coordinator_->begin_backward(module);
  }

  void recomputed() override {
    for (const size_t index : begun_again_) modules_[index].inputs.clear();
    begun_again_.clear();
  }

  void accumulated(const Tensor& leaf) override {
    const auto at = trained_.find(leaf.get());
    if (at == trained_.end()) return;
    // reduce_independent_p_g_buckets_and_remove_grads
    const int64_t elements = leaf.elements();
    if (filled_ > 0 && filled_ + elements > options_.reduce_bucket_elements) reduce_bucket();
    if (filled_ + elements <= options_.reduce_bucket_elements) {
      leaf->grad = eager_.alias(bucket_, leaf.sizes(), leaf.strides());
      leaf->grad->base = Tensor();
      eager_.kernel(op::OpKind::copy, 0, leaf.bytes(), leaf.bytes());
    }
    waiting_.push_back(at->second);
    filled_ += elements;
  }

  void end_backward() override {
    reduce_bucket();
    recorder_.await_all();
    coordinator_->end_pass();
    watches_.clear();
    for (Module& module : modules_) module.inputs.clear();
  }

  void run_optimizer(const std::function<void()>& step) override {
    const op::GradMode no_grad(eager_, false);
    coordinator_->let_all_go();
    if (!options_.offload_optimizer) step_sub_groups(step);
    norms_.clear();
    coordinator_->gather_what_persists();
  }

 private:
  // Which modules' forward a node made an output of; nodes are recognised, and held alone where
  // nobody else does: an output that asked for a gradient was made by none.
  struct Watch {
    uint64_t sequence = 0;
    std::vector<size_t> modules;
    op::NodeRef accumulates = {};
  };

  void step_sub_groups(const std::function<void()>& step) {
    if (options_.weights == DType::f16) look_for_infinities();
    for (const SubGroup& group : sub_groups_) measure_norms(group);
    for (SubGroup& group : sub_groups_) {
      flatten_gradients(group);
      step();
      group.master->grad = Tensor();
      eager_.kernel(op::OpKind::copy, 0, group.master.bytes(), group.master.bytes() / 2);
    }
  }

  [[nodiscard]] int64_t trained_elements() const {
    return sub_groups_.empty() ? 0 : sub_groups_.back().begin + sub_groups_.back().elements;
  }

  [[nodiscard]] DType type_of(const Parameter& parameter) const {
    return parameter.dtype.value_or(options_.weights);
  }

  // The model's own, then adapters; within them by module.
  void make_parameters(Frame& frame) {
    const CategoryScope scope(recorder_, Category::parameter);
    size_t begun = 0;
    std::string_view module;
    const auto take_parts = [&] {
      for (; begun < parameters_.size(); ++begun) parameters_.take_part(begun);
    };
    for (const Parameter& parameter : graph_.parameters) {
      if (parameter.tied_to) continue;
      const std::string_view name = zero3_module_name(parameter);
      if (std::exchange(module, name) != name) take_parts();
      parameters_.add(parameter.shape, type_of(parameter), parameter.trainable);
      frame[parameter.value] = parameters_[parameters_.size() - 1].leaf;
    }
    take_parts();
    make_sub_groups();
  }

  // _create_fp16_sub_groups, of each group of the optimizer's.
  void make_sub_groups() {
    for (const bool decays : {true, false}) {
      std::vector<size_t> group;
      int64_t elements = 0;
      for (const auto& [of_graph, index] : index_of_) {
        const Parameter& parameter = graph_.parameters[of_graph];
        if (!parameter.trainable) continue;
        const bool its = !options_.decay_groups || decays_of(index, parameter);
        if (its != decays) continue;
        group.push_back(index);
        elements += parameters_[index].share;
      }
      cut(group, elements, decays);
    }
  }

  [[nodiscard]] bool decays_of(size_t index, const Parameter& parameter) const {
    return optimized_parameter(parameters_[index].leaf, parameter).decays;
  }

  void cut(const std::vector<size_t>& group, int64_t elements, bool decays) {
    const bool is_one = options_.sub_group_elements >= elements;
    SubGroup next;
    for (const size_t index : group) {
      next.parameters.push_back(index);
      next.elements += parameters_[index].share;
      const bool is_last = index == group.back();
      if (!is_last && (is_one || next.elements < options_.sub_group_elements)) continue;
      next.decays = decays;
      next.begin = sub_groups_.empty() ? 0 : sub_groups_.back().begin + sub_groups_.back().elements;
      sub_groups_.push_back(std::exchange(next, {}));
    }
  }

  // defragment; on the host _create_param_groups_fp16_flat_cpu_memory
  void flatten_parts() {
    for (const SubGroup& group : sub_groups_) {
      for (const size_t index : group.parameters) {
        parameters_[index].part = Tensor();
        trained_[parameters_[index].leaf.get()] = index;
      }
    }
    if (options_.offload_parameters) return;
    recorder_.empty_cache();
    const CategoryScope scope(recorder_, Category::parameter);
    flat_ = eager_.empty({trained_elements()}, options_.weights);
    parameters_.set_flat(flat_);
  }

  // _create_fp32_partitions, whose copy is there until the next one is; initialize_optimizer_states
  std::vector<OptimizedParameter> make_masters() {
    std::vector<OptimizedParameter> masters;
    if (options_.offload_optimizer) return masters;
    Tensor copy;
    int64_t most = 0;
    for (SubGroup& group : sub_groups_) {
      {
        const CategoryScope scope(recorder_, Category::temporary);
        // From the host it comes wide.
        copy = flat_ ? op::to(eager_, part_of(flat_, group), DType::f32)
                     : eager_.empty({group.elements}, DType::f32);
      }
      const CategoryScope scope(recorder_, Category::optimizer_state);
      group.master = eager_.empty({group.elements}, DType::f32);
      eager_.kernel(op::OpKind::clone, 0, group.master.bytes(), group.master.bytes());
      most = std::max(most, group.elements);
      OptimizedParameter& master = masters.emplace_back();
      master.tensor = group.master;
      master.decays = group.decays;
    }
    copy = Tensor();
    const CategoryScope scope(recorder_, Category::temporary);
    (void)eager_.empty({most}, DType::f32);
    return masters;
  }

  // Of the optimizer masters, their gradients and two states of Adam's, group by group, and the
  // gradients in half precision; of parameters the shares.
  void hold_on_host() {
    using enum HostMemory::Kind;
    const int64_t half = op::element_size(options_.weights);
    if (options_.offload_optimizer) {
      for (const SubGroup& group : sub_groups_) {
        recorder_.hold_on_host(4 * group.elements, pinned);
        for (int i = 0; i < 3; ++i) recorder_.hold_on_host(4 * group.elements, pageable);
      }
      recorder_.hold_on_host(half * trained_elements(), pinned);
    }
    if (!options_.offload_parameters) return;
    for (const bool decays : {true, false}) {
      int64_t elements = 0;
      for (const SubGroup& group : sub_groups_) {
        if (group.decays == decays) elements += group.elements;
      }
      if (elements > 0) recorder_.hold_on_host(half * elements, pinned);
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].leaf->requires_grad || parameters_[i].part) continue;
      recorder_.hold_on_host(parameters_[i].share * op::element_size(parameters_[i].leaf.dtype()),
                             pinned);
    }
  }

  // create_reduce_and_remove_grad_hooks
  void gather_each() {
    for (const SubGroup& group : sub_groups_) {
      for (const size_t index : group.parameters) {
        parameters_.gather_apart(std::span(&index, 1));
        parameters_.let_go(index);
      }
    }
  }

  [[nodiscard]] Tensor part_of(const Tensor& flat, const SubGroup& group) {
    return eager_.alias(flat, {group.elements}, {1});
  }

  // The module that is the region; none where the region is no module.
  [[nodiscard]] std::optional<size_t> module_of(const model::Region& region) const {
    const auto begun = beginning_.find(region.begin + 1);
    if (begun == beginning_.end()) return std::nullopt;
    for (const size_t index : begun->second) {
      const Zero3Module& what = modules_[index].what;
      if (what.parameters.empty() && what.last + 2 == region.end) return index;
    }
    return std::nullopt;
  }
  // Does it run again here without its hooks, which stand around the checkpoint?
  [[nodiscard]] bool is_outside(size_t index) const {
    return eager_.thread() == op::ThreadKind::autograd && outside_.contains(index);
  }

  // PostBackwardFunctionModule: its backward runs when the module's has.
  void wrap_inputs(size_t index, Frame& frame) {
    Module& module = modules_[index];
    module.inputs.clear();
    module.awaited = 0;
    if (eager_.thread() == op::ThreadKind::autograd) begun_again_.push_back(index);
    for (const model::ValueId id : module.what.inputs) {
      if (id == model::kNoValue || !frame[id] || !frame[id].requires_grad()) continue;
      const Tensor input = frame[id];
      Tensor wrapped = eager_.alias(input, input.sizes(), input.strides());
      op::Node* node = eager_.history("PostBackwardFunctionModuleBackward", {&input}, {&wrapped});
      node->apply = [this, index](op::Eager&, op::Node&, op::Grads& grads, op::Grads& results) {
        if (--modules_[index].awaited == 0) coordinator_->end_backward(index);
        results[0] = grads[0];
      };
      ++module.awaited;
      frame[id] = wrapped;
      module.inputs.push_back({id, input, std::move(wrapped)});
    }
  }

  static void restore_inputs(Module& module, Frame& frame) {
    for (WrappedInput& input : module.inputs) {
      if (frame[input.value].get() == input.wrapped.get()) frame[input.value] = input.original;
    }
    module.inputs.clear();
  }

  // PreBackwardFunctionForModule
  void watch_outputs(size_t index, const Frame& frame) {
    for (const model::ValueId id : modules_[index].what.outputs) {
      if (!frame[id] || !frame[id].requires_grad()) continue;
      const op::Edge edge = eager_.gradient_edge(frame[id]);
      Watch& watch = watches_[edge.node.get()];
      if (watch.sequence != edge.node->sequence) watch = {edge.node->sequence, {}};
      if (edge.node->variable) watch.accumulates = edge.node;
      watch.modules.push_back(index);
    }
  }

  // __reduce_and_partition_ipg_grads
  void reduce_bucket() {
    if (waiting_.empty()) return;
    std::ranges::sort(waiting_);
    scatter();
    for (const size_t index : waiting_) {
      const int64_t bytes = parameters_[index].share * op::element_size(options_.weights);
      if (options_.offload_optimizer) {
        send_to_host(index);
      } else if (is_first_) {
        eager_.kernel(op::OpKind::copy, 0, bytes, bytes);
      } else {
        eager_.kernel(op::OpKind::add, static_cast<double>(parameters_[index].share), 2 * bytes,
                      bytes);
      }
      parameters_[index].leaf->grad = Tensor();
    }
    waiting_.clear();
    filled_ = 0;
  }

  // partition_grads, _offload_grad_partition_at_boundary, _constant_buffered_norm2: the share in
  // the host's block comes back to be added to, measured and widened.
  void send_to_host(size_t index) {
    constexpr int64_t kMeasuredAtOnce = 250'000'000;
    const StreamScope on_stream(recorder_, options_.overlap_comm ? kReduceStream : 0);
    Tensor part;
    {
      const CategoryScope copies(recorder_, Category::temporary);
      part = eager_.empty({parameters_[index].share}, options_.weights);
    }
    const CategoryScope scope(recorder_, Category::communication);
    eager_.kernel(op::OpKind::add, static_cast<double>(part.elements()), 2 * part.bytes(),
                  part.bytes());
    if (!is_last_) return;
    for (int64_t begin = 0; begin < part.elements(); begin += kMeasuredAtOnce) {
      const int64_t elements = std::min(kMeasuredAtOnce, part.elements() - begin);
      const Tensor wide = op::to(eager_, eager_.alias(part, {elements}, {1}), DType::f64);
      eager_.kernel(op::OpKind::sum, 2.0 * static_cast<double>(elements), wide.bytes(), 8);
    }
    norms_.push_back(eager_.empty({}, DType::f64));
    (void)op::to(eager_, part, DType::f32);
  }

  // reduce_scatter_coalesced. Gradients of fewer elements than their shares together are padded.
  void scatter() {
    const CategoryScope scope(recorder_, Category::communication);
    const StreamScope on_stream(recorder_, options_.overlap_comm ? kReduceStream : 0);
    int64_t shares = 0;
    for (const size_t index : waiting_) shares += parameters_[index].share;
    const int64_t elements = shares * options_.ranks;
    const int64_t bytes = elements * op::element_size(options_.weights);
    std::vector<Tensor> padding;
    Tensor together;
    if (waiting_.size() > 1 || elements != parameters_.elements(waiting_[0])) {
      for (int64_t rank = 0; rank < options_.ranks; ++rank) {
        for (const size_t index : waiting_) add_padding(index, rank, padding);
      }
      together = eager_.empty({elements}, options_.weights);
      eager_.kernel(op::OpKind::cat, 0, bytes, bytes);
    }
    eager_.kernel(op::OpKind::div, static_cast<double>(elements), bytes, bytes);
    if (options_.ranks == 1) return;
    if (options_.overlap_comm) {
      (void)recorder_.begin_collective(op::OpKind::reduce_scatter, bytes, bytes / options_.ranks);
    } else {
      recorder_.run_collective(op::OpKind::reduce_scatter, bytes, bytes / options_.ranks);
    }
  }

  void add_padding(size_t index, int64_t rank, std::vector<Tensor>& padding) {
    const int64_t share = parameters_[index].share;
    const int64_t own = std::clamp<int64_t>(parameters_.elements(index) - rank * share, 0, share);
    if (own < share) padding.push_back(eager_.empty({share - own}, options_.weights));
  }

  // has_overflow: isinf takes a copy of the magnitudes.
  void look_for_infinities() {
    const CategoryScope scope(recorder_, Category::temporary);
    const int64_t elements = gradients_.elements();
    {
      const Tensor magnitudes = eager_.empty({elements}, options_.weights);
      eager_.kernel(op::OpKind::compare, 0, gradients_.bytes(), magnitudes.bytes());
      const Tensor found = eager_.empty({elements}, DType::boolean);
      eager_.kernel(op::OpKind::compare, 0, magnitudes.bytes(), found.bytes());
    }
    const Tensor found = eager_.empty({elements}, DType::boolean);
    eager_.kernel(op::OpKind::compare, 0, gradients_.bytes(), found.bytes());
  }

  // get_grad_norm_direct
  void measure_norms(const SubGroup& group) {
    const CategoryScope scope(recorder_, Category::temporary);
    std::vector<Tensor> norms;
    for (const size_t index : group.parameters) {
      const Tensor part = eager_.alias(gradients_, {parameters_[index].share}, {1});
      const Tensor wide = op::to(eager_, part, DType::f64);
      eager_.kernel(op::OpKind::sum, 2.0 * static_cast<double>(wide.elements()), wide.bytes(), 8);
      norms.push_back(eager_.empty({}, DType::f64));
    }
    if (options_.ranks > 1) recorder_.run_collective(op::OpKind::all_reduce, 8, 8);
  }

  // _prepare_fp32_grad_for_sub_group, unscale_and_clip_grads
  void flatten_gradients(SubGroup& group) {
    const CategoryScope scope(recorder_, Category::gradient);
    Tensor flat;
    if (group.parameters.size() > 1) {
      flat = eager_.empty({group.elements}, options_.weights);
      eager_.kernel(op::OpKind::cat, 0, flat.bytes(), flat.bytes());
    } else {
      flat = part_of(gradients_, group);
    }
    group.master->grad = op::to(eager_, flat, DType::f32);
    eager_.kernel(op::OpKind::mul, static_cast<double>(group.elements), group.master.bytes(),
                  group.master.bytes());
  }

  const Graph& graph_;
  const ZeroOptions options_;
  op::Eager& eager_;
  Recorder& recorder_;
  InstructionMarks marks_;
  Zero3Parameters parameters_;
  std::map<size_t, size_t> index_of_;  // into parameters_, by index into the graph's
  std::vector<Module> modules_;
  std::unordered_map<uint32_t, std::vector<size_t>> beginning_;  // modules, by instruction
  std::unordered_map<uint32_t, std::vector<size_t>> ending_;
  std::optional<Zero3Coordinator> coordinator_;
  std::unordered_map<const op::Node*, Watch> watches_;
  std::unordered_set<size_t> outside_;  // modules that run as reentrant checkpoints
  std::vector<size_t> begun_again_;  // modules of a recomputation, which may be cut off within them
  std::vector<SubGroup> sub_groups_;
  std::unordered_map<const op::TensorImpl*, size_t> trained_;  // indices into parameters_
  Tensor flat_;                                                // shares of what is trained
  Tensor gradients_;                                           // of them
  Tensor bucket_;
  std::vector<size_t> waiting_;  // parameters whose gradients are to be reduced
  int64_t filled_ = 0;           // elements of those
  bool is_first_ = true;         // of a step's micro-batches
  bool is_last_ = true;
  std::vector<Tensor> norms_;  // offloaded: of the rank's shares of gradients
};

}  // namespace

std::unique_ptr<ParallelMethod> make_zero3(const Graph& graph, const ZeroOptions& options,
                                           op::Eager& eager, Recorder& recorder) {
  return std::make_unique<Zero3>(graph, options, eager, recorder);
}

}  // namespace headroom::step
