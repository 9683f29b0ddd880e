#include "step/compiled/joint_graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace headroom::step {

using op::Dims;
using op::Eager;
using op::Grads;
using op::KernelWork;
using op::Node;
using op::OpGroup;
using op::OpKind;
using op::Tensor;

namespace {

// Blocks by number, and the kernels of the operator that runs.
class JointSink : public op::Sink {
 public:
  uint32_t on_allocate(int64_t bytes) override {
    live_.push_back(true);
    bytes_.push_back(bytes);
    live_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    return static_cast<uint32_t>(live_.size() - 1);
  }
  void on_free(uint32_t block) override {
    live_[block] = false;
    live_bytes_ -= bytes_[block];
  }
  void on_kernel(const KernelWork& work) override { work_.push_back(work); }
  void on_saved(uint32_t) override {}
  void on_module(uint32_t) override {}

  void begin_kernel() {
    work_.clear();
    first_ = live_.size();
    peak_bytes_ = before_bytes_ = live_bytes_;
  }
  // Blocks made since then that are still there.
  [[nodiscard]] std::vector<uint32_t> made() const {
    std::vector<uint32_t> blocks;
    for (size_t block = first_; block < live_.size(); ++block) {
      if (live_[block]) blocks.push_back(static_cast<uint32_t>(block));
    }
    return blocks;
  }
  [[nodiscard]] int64_t bytes(uint32_t block) const { return bytes_[block]; }
  // What was held at most beyond what was there before and what was made.
  [[nodiscard]] int64_t scratch_bytes() const {
    int64_t kept = before_bytes_;
    for (const uint32_t block : made()) kept += bytes_[block];
    return std::max<int64_t>(peak_bytes_ - kept, 0);
  }
  [[nodiscard]] bool has_work() const { return !work_.empty(); }
  std::vector<KernelWork> take_work() { return std::exchange(work_, {}); }

 private:
  std::vector<bool> live_;
  std::vector<int64_t> bytes_;
  std::vector<KernelWork> work_;
  size_t first_ = 0;
  int64_t live_bytes_ = 0;
  int64_t before_bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

// Kernels that a library brings: nothing is fused into them. What scatters rows is an atomic
// kernel of its own in generated code too.
bool is_library_kernel(OpKind kind, bool is_forward) {
  switch (op::group_of(kind)) {
    case OpGroup::gemm:
    case OpGroup::attention:
    case OpGroup::routing:
    case OpGroup::communication:
      return true;
    case OpGroup::embedding:
      return !is_forward;
    default:
      return kind == OpKind::index_put || kind == OpKind::index_add ||
             kind == OpKind::index_add_assign || kind == OpKind::scatter;
  }
}

// The blocks that a selective checkpoint keeps of what the operator that runs makes. Counts as
// checkpoints do (checkpoint.cpp).
class KeepingRule : public op::OutputCache {
 public:
  explicit KeepingRule(KeptOutputs kept) : kept_(kept) {}
  // Each checkpoint counts for itself.
  void enter(uint32_t checkpoint) {
    if (std::exchange(checkpoint_, checkpoint) != checkpoint) products_ = 0;
  }
  bool take(OpKind, std::initializer_list<Tensor*>) override { return false; }
  void made(OpKind kind, std::initializer_list<const Tensor*> outputs) override {
    if (checkpoint_ == 0 || !kept_.keeps(kind, products_)) return;
    for (const Tensor* output : outputs) blocks_.push_back((*output)->storage->buffer);
  }
  std::vector<uint32_t> take_blocks() { return std::exchange(blocks_, {}); }

 private:
  KeptOutputs kept_;
  uint32_t checkpoint_ = 0;
  int64_t products_ = 0;
  std::vector<uint32_t> blocks_;
};

// Fused, but not among what PyTorch computes again (get_default_op_list in partitioners.py).
bool is_banned_again(OpKind kind) { return op::group_of(kind) == OpGroup::embedding; }

constexpr size_t kValuesMax = size_t{1} << 16;  // partition.cpp counts on it

class JointTracer {
 public:
  JointTracer(const model::Graph& graph, uint32_t region, const Frame& frame,
              const op::Environment& environment, const RegionCheckpoints& checkpoints)
      : graph_(graph),
        region_(graph.regions[region]),
        eager_(sink_, environment),
        keeping_(checkpoints.kept),
        inside_(graph.value_count),
        is_static_(graph.value_count),
        places_(graph.instructions.size(), {0, region + 1}) {
    for (const model::Parameter& p : graph.parameters) is_static_[p.value] = true;
    for (const model::Parameter& buffer : graph.buffers) is_static_[buffer.value] = true;
    find_places(checkpoints.regions);
    take_arguments(frame);
    eager_.set_output_cache(&keeping_);
    run_forward(region);
    eager_.set_output_cache(nullptr);
    run_backward();
    if (result_.values.size() > kValuesMax) refuse("a region of more than 65,536 values");
  }
  JointGraph take() { return std::move(result_); }

 private:
  JointTensor as_joint(const Tensor& tensor) {
    const uint32_t block = tensor->storage->buffer;
    const auto [found, is_new] =
        value_of_.try_emplace(block, static_cast<JointValueId>(result_.values.size()));
    JointTensor joint{found->second, tensor.sizes(), tensor.strides(), tensor.dtype()};
    if (is_new && tensor.bytes() == tensor->storage->bytes) {
      result_.values.push_back(joint);
    } else if (is_new) {
      result_.values.push_back(whole_block(found->second, tensor->storage->bytes));
    }
    return joint;
  }

  static JointTensor whole_block(JointValueId value, int64_t bytes) {
    return {value, Dims{bytes}, Dims{1}, op::DType::u8};
  }

  // Of a block of which no tensor is at hand (statistics that an operator keeps).
  JointValueId value_of(uint32_t block) {
    const auto [found, is_new] =
        value_of_.try_emplace(block, static_cast<JointValueId>(result_.values.size()));
    if (is_new) result_.values.push_back(whole_block(found->second, sink_.bytes(block)));
    return found->second;
  }

  bool is_argument(JointValueId value) const {
    return std::ranges::find(result_.arguments, value) != result_.arguments.end();
  }

  void take_argument(model::ValueId id, const Frame& frame) {
    if (id == model::kNoValue || inside_[id] || !frame[id]) return;
    if (!frame[id]->storage) {  // a tensor that stands for its type alone
      inside_[id] = frame[id];
      return;
    }
    const Tensor& outside = frame[id];
    // Views of one block stay views of one block.
    Tensor& block = blocks_[outside->storage.get()];
    if (!block) {
      const int64_t bytes = outside->storage->bytes;
      block = eager_.empty({bytes / op::element_size(outside.dtype())}, outside.dtype());
    }
    Tensor argument = eager_.alias(block, outside.sizes(), outside.strides());
    argument->base = Tensor();
    argument->dtype = outside.dtype();
    argument->requires_grad = outside->requires_grad;
    result_.taken.push_back(id);
    result_.is_static.push_back(is_static_[id]);
    result_.arguments.push_back(as_joint(argument).value);
    arguments_.push_back(argument);
    inside_[id] = std::move(argument);
  }

  void take_arguments(const Frame& frame) {
    std::vector<bool> is_made(graph_.value_count);
    for (uint32_t i = region_.begin; i < region_.end; ++i) {
      const model::Operation* operation = operation_at(i);
      if (operation == nullptr) continue;
      for (const model::ValueId id : operation->inputs) {
        if (id != model::kNoValue && !is_made[id]) take_argument(id, frame);
      }
      for (const model::ValueId id : operation->outputs) is_made[id] = true;
    }
    result_.made = region_.outputs;
    for (const model::ValueId id : region_.outputs) {
      if (!is_made[id]) take_argument(id, frame);
      is_made[id] = false;
    }
    for (uint32_t i = region_.end; i < graph_.instructions.size(); ++i) {
      const model::Operation* operation = operation_at(i);
      if (operation == nullptr) continue;
      for (const model::ValueId id : operation->inputs) {
        if (id == model::kNoValue || !is_made[id]) continue;
        result_.made.push_back(id);
        is_made[id] = false;
      }
    }
  }

  [[nodiscard]] const model::Operation* operation_at(uint32_t instruction) const {
    const model::Instruction& at = graph_.instructions[instruction];
    const bool is_operation = at.kind == model::InstructionKind::operation;
    return is_operation ? &graph_.operations[at.index] : nullptr;
  }

  // Where an instruction is: in which checkpoint, and in what that has a name in breakdowns.
  struct Place {
    uint32_t checkpoint = 0;
    uint32_t module = 0;
  };

  // Regions are listed as they are entered, so what is within another comes behind it.
  void find_places(const std::vector<bool>& checkpointed) {
    for (uint32_t r = 0; r < graph_.regions.size(); ++r) {
      const model::Region& part = graph_.regions[r];
      if (part.begin < region_.begin || part.end > region_.end) continue;
      const bool is_named =
          part.kind == model::RegionKind::layer || part.kind == model::RegionKind::lm_head ||
          part.kind == model::RegionKind::logits || part.kind == model::RegionKind::head_weight ||
          part.kind == model::RegionKind::loss;
      for (uint32_t i = part.begin; i < part.end; ++i) {
        if (checkpointed[r]) places_[i].checkpoint = r + 1;
        if (is_named) places_[i].module = r + 1;
      }
    }
  }

  // Of what a module (a region's number and one) does outside of forward.
  [[nodiscard]] Place place_of(uint32_t module) const {
    return {0, module == 0 ? 0 : places_[graph_.regions[module - 1].begin].module};
  }

  [[noreturn]] static void refuse(const std::string& why) {
    throw op::Impossible{why + ", which is not modelled under torch.compile",
                         "--compile none, or --compile loss"};
  }

  // `written`: tensors whose block it wrote over. Such a block has a new value from here on, as
  // torch.compile makes operators that work in place functional.
  void end_kernel(const std::vector<Tensor>& reads, bool is_forward,
                  const std::vector<Tensor>& written = {}) {
    JointKernel kernel;
    kernel.work = sink_.take_work();
    kernel.scratch_bytes = sink_.scratch_bytes();
    kernel.is_forward = is_forward;
    kernel.checkpoint = place_.checkpoint;
    kernel.module = place_.module;
    const std::vector<uint32_t> kept = keeping_.take_blocks();
    const std::vector<uint32_t> made = sink_.made();
    if (made.empty() && written.empty()) {
      if (!kernel.work.empty()) refuse("an operator writes into what the region was given");
      return;
    }
    for (const KernelWork& work : kernel.work) {
      kernel.is_fusible &= !is_library_kernel(work.kind, is_forward);
      kernel.is_recomputable &= kernel.is_fusible && !is_banned_again(work.kind);
      kernel.casts_operands |= work.kind == OpKind::mm && work.element_bytes == 1;
      kernel.is_random |= work.kind == OpKind::dropout && is_forward;
    }
    for (const Tensor& read : reads) {
      if (!read || !read->storage) continue;
      add_read(kernel, as_joint(read).value, std::min(read.bytes(), read->storage->bytes));
    }
    for (const uint32_t block : made) {
      kernel.writes.push_back(value_of(block));
      const bool is_kept = std::ranges::find(kept, block) != kept.end();
      if (is_forward && is_kept) kernel.kept.push_back(kernel.writes.back());
    }
    for (const Tensor& tensor : written) {
      value_of_.erase(tensor->storage->buffer);
      kernel.writes.push_back(as_joint(tensor).value);
    }
    is_softmax(kernel) ? add_in_parts(std::move(kernel))
                       : result_.kernels.push_back(std::move(kernel));
  }

  static bool is_softmax(const JointKernel& kernel) {
    const size_t reads = kernel.is_forward ? 1 : 2;  // there the gradient and what forward made
    return kernel.work.size() == 1 && kernel.reads.size() == reads && kernel.writes.size() == 1 &&
           kernel.kept.empty() &&
           (kernel.work[0].kind == OpKind::softmax || kernel.work[0].kind == OpKind::log_softmax);
  }

  // As the compiler has it: sums of each row, and its greatest number, of which all else is made
  // element by element (torch/_decomp/decompositions.py).
  void add_in_parts(JointKernel&& whole) {
    constexpr int64_t kStatistics = 2 * 4;
    JointKernel rows = whole;
    const Dims& sizes = result_.values[whole.writes[0]].sizes;
    const int64_t count = op::product(sizes) / std::max<int64_t>(sizes.back(), 1);
    const auto statistics = static_cast<JointValueId>(result_.values.size());
    result_.values.push_back(whole_block(statistics, count * kStatistics));
    rows.writes = {statistics};
    if (!whole.is_forward && whole.work[0].kind == OpKind::log_softmax) {  // of the gradient alone
      rows.reads.resize(1);
      rows.read_bytes.resize(1);
    }
    rows.work[0].kind = OpKind::amax;
    rows.work[0].bytes_written = count * kStatistics;
    whole.work[0].kind = OpKind::sub;
    whole.scratch_bytes = 0;
    add_read(whole, statistics, count * kStatistics);
    result_.kernels.push_back(std::move(rows));
    result_.kernels.push_back(std::move(whole));
  }

  static void add_read(JointKernel& kernel, JointValueId value, int64_t bytes) {
    const auto known = std::ranges::find(kernel.reads, value);
    if (known != kernel.reads.end()) {
      int64_t& most = kernel.read_bytes[static_cast<size_t>(known - kernel.reads.begin())];
      most = std::max(most, bytes);
      return;
    }
    kernel.reads.push_back(value);
    kernel.read_bytes.push_back(bytes);
  }

  // What the same operator on the same tensors made before; empty where it is the first. Null where
  // each time is another (random numbers, views, what is written over).
  std::vector<JointValueId>* same_before(const model::Operation& operation,
                                         const std::vector<Tensor>& reads) {
    const bool is_plain = operation.kind != OpKind::dropout && !operation.recording;
    if (!is_plain || !sink_.has_work() || sink_.made().empty()) return nullptr;
    std::vector<int64_t> key{
        static_cast<int64_t>(operation.kind), operation.attributes.flag,
        std::bit_cast<int64_t>(operation.attributes.number),
        operation.attributes.dtype ? static_cast<int64_t>(*operation.attributes.dtype) : -1};
    key.insert(key.end(), operation.attributes.ints.begin(), operation.attributes.ints.end());
    for (const Tensor& read : reads) {
      key.push_back(-1);
      if (!read || !read->storage) continue;
      const JointTensor joint = as_joint(read);
      key.push_back(joint.value);
      key.push_back(static_cast<int64_t>(joint.dtype));
      key.insert(key.end(), joint.sizes.begin(), joint.sizes.end());
      key.insert(key.end(), joint.strides.begin(), joint.strides.end());
    }
    return &made_by_[std::move(key)];
  }

  // Its blocks are the earlier one's then, and it is no kernel (fx_graph_cse in compile_utils.py).
  bool is_made_before(const std::vector<JointValueId>& earlier) {
    const std::vector<uint32_t> made = sink_.made();
    if (earlier.empty() || made.size() != earlier.size()) return false;
    for (size_t i = 0; i < made.size(); ++i) value_of_[made[i]] = earlier[i];
    sink_.take_work();
    keeping_.take_blocks();
    return true;
  }

  void run_forward(uint32_t region) {
    Interpreter interpreter(eager_, graph_);
    InstructionMarks marks(graph_.instructions.size());
    for (uint32_t i = region_.begin; i < region_.end; ++i) {
      const bool runs = operation_at(i) != nullptr;
      marks[i] = {runs, runs};
    }
    interpreter.set_watcher(marks, [this](uint32_t instruction, bool is_after, Frame& frame) {
      if (!is_after) {
        place_ = places_[instruction];
        keeping_.enter(place_.checkpoint);
        return sink_.begin_kernel();
      }
      const model::Operation& operation = *operation_at(instruction);
      // Named by the tensors that the graph knows, before blocks that it does not.
      std::vector<Tensor> reads;
      for (const model::ValueId id : operation.inputs) {
        if (id != model::kNoValue) reads.push_back(frame[id]);
      }
      std::vector<JointValueId>* const earlier = same_before(operation, reads);
      if (earlier != nullptr && is_made_before(*earlier)) return;
      std::vector<Tensor> written;
      for (const model::ValueId id : operation.outputs) {
        if (!frame[id] || !frame[id]->storage) continue;
        const JointValueId value = as_joint(frame[id]).value;
        if (sink_.has_work() && sink_.made().empty() && !is_argument(value)) {
          written.push_back(frame[id]);
        }
      }
      if (operation.kind == OpKind::nonzero) refuse("sizes that depend on data break its graph");
      end_kernel(reads, true, written);
      if (earlier != nullptr) *earlier = result_.kernels.back().writes;
    });
    interpreter.run_region(region, inside_);
    for (const model::ValueId id : result_.made) result_.outputs.push_back(as_joint(inside_[id]));
  }

  // The nodes behind the outputs, those that run first in front.
  std::vector<op::NodeRef> nodes_behind_outputs() {
    std::set<Node*> seen;
    std::vector<op::NodeRef> nodes;
    std::vector<op::NodeRef> pending;
    for (const model::ValueId id : result_.made) {
      if (inside_[id]->grad_fn) pending.push_back(inside_[id]->grad_fn);
    }
    while (!pending.empty()) {
      const op::NodeRef node = pending.back();
      pending.pop_back();
      if (!seen.insert(node.get()).second) continue;
      if (!node->variable) nodes.push_back(node);
      for (const op::Edge& edge : node->next) {
        if (edge.node) pending.push_back(edge.node);
      }
    }
    std::ranges::sort(nodes, [](const op::NodeRef& a, const op::NodeRef& b) {
      return a->sequence > b->sequence;
    });
    return nodes;
  }

  void add_gradient(const op::Edge& edge, const Tensor& gradient) {
    Grads& grads = gradients_[edge.node.get()];
    grads.resize(edge.node->outputs.size());
    Tensor& slot = grads[edge.input_number];
    if (!slot) {
      slot = gradient;
      return;
    }
    sink_.begin_kernel();
    Tensor sum = op::add(eager_, slot, gradient);
    as_joint(sum);
    end_kernel({slot, gradient}, false);
    slot = std::move(sum);
  }

  void run_node(Node& node) {
    Grads grads = std::move(gradients_[&node]);
    gradients_.erase(&node);
    if (std::ranges::none_of(grads, [](const Tensor& grad) { return static_cast<bool>(grad); })) {
      return;
    }
    grads.resize(node.outputs.size());
    place_ = place_of(node.module);
    if (is_product(node)) {
      run_product(node, grads);
      return;
    }
    const std::vector<Tensor> reads = read_by(node, grads);
    Grads results = run_once(node, grads);
    grads.clear();
    node.saved.clear();
    end_kernel(reads, false);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i]) add_gradient(node.next[i], results[i]);
    }
  }

  // Of what it saved a likelihood's node wants the sizes of the probabilities alone
  // (_nll_loss_backward in torch/_decomp/decompositions.py). The node of a loss over divided logits
  // has that name, too, and reads them: such a loss is not compiled (fit/scenario/parts.cpp).
  static std::vector<Tensor> read_by(const Node& node, const Grads& grads) {
    std::vector<Tensor> reads(grads.begin(), grads.end());
    const bool wants_sizes = std::string_view(node.name) == "NllLossBackward0";
    const auto first = node.saved.begin() + (wants_sizes && !node.saved.empty() ? 1 : 0);
    reads.insert(reads.end(), first, node.saved.end());
    return reads;
  }

  // Autograd's node of a product makes the gradients of both factors. They are kernels of their
  // own, each after the other factor alone, but where both gradients go to one node (a square),
  // which wants all or none. Of those of matrices the factors are saved in order, of elementwise
  // ones in the order of the gradients that they are for.
  static bool is_product(const Node& node) {
    constexpr std::array<std::string_view, 6> kProducts{"MmBackward0",  "AddmmBackward0",
                                                        "BmmBackward0", "BaddbmmBackward0",
                                                        "MulBackward0", op::kFloat8Product};
    if (std::ranges::find(kProducts, node.name) == kProducts.end()) return false;
    std::set<const Node*> receivers;
    return std::ranges::all_of(node.next, [&](const op::Edge& edge) {
      return !edge.node || receivers.insert(edge.node.get()).second;
    });
  }

  // PyTorch's generated nodes make gradients in the order of their arguments' names: of `mat2`
  // before `self`, of an addmm's `mat1` and `mat2` before `self`. torchao's makes its input's
  // first.
  static std::vector<size_t> factors_in_order(const Node& node) {
    std::vector<size_t> factors(node.next.size());
    std::iota(factors.begin(), factors.end(), 0);
    if (factors.size() == 2 && std::string_view(node.name) != op::kFloat8Product) {
      std::ranges::reverse(factors);
    } else if (factors.size() == 3) {
      std::ranges::rotate(factors, factors.begin() + 1);
    }
    return factors;
  }

  void run_product(Node& node, Grads& grads) {
    const bool is_elementwise = std::string_view(node.name) == "MulBackward0";
    for (const size_t i : factors_in_order(node)) {
      if (!node.needs(i)) continue;
      std::vector<op::NodeRef> others;
      for (size_t other = 0; other < node.next.size(); ++other) {
        if (other == i || !node.needs(other)) continue;
        others.push_back(node.next[other].node);
      }
      for (const op::NodeRef& other : others) other->task.is_wanted = false;
      Grads results = run_once(node, grads);
      for (const op::NodeRef& other : others) other->task.is_wanted = true;
      if (!results[i]) continue;
      std::vector<Tensor> reads(grads.begin(), grads.end());
      const size_t first = node.next.size() - node.saved.size();  // an addmm's bias is not saved
      for (size_t factor = 0; factor < node.saved.size(); ++factor) {
        const bool is_other = (first + factor != i) != is_elementwise;
        if (node.saved[factor] && is_other) reads.push_back(node.saved[factor]);
      }
      end_kernel(reads, false);
      add_gradient(node.next[i], results[i]);
    }
    node.saved.clear();
  }

  Grads run_once(Node& node, Grads& grads) {
    Grads results(node.next.size());
    sink_.begin_kernel();
    node.apply(eager_, node, grads, results);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i] || !node.needs(i)) {
        results[i] = Tensor();
        continue;
      }
      const op::GradientType& expected = node.next[i].node->outputs[node.next[i].input_number];
      if (!(results[i].sizes() == expected.sizes)) {
        results[i] = op::sum_to(eager_, results[i], expected.sizes);
      }
      if (results[i].dtype() != expected.dtype) {
        results[i] = op::to(eager_, results[i], expected.dtype);
      }
    }
    for (const Tensor& result : results) {
      if (result) as_joint(result);
    }
    return results;
  }

  void run_backward() {
    const op::GradMode no_grad(eager_, false);
    const std::vector<op::NodeRef> nodes = nodes_behind_outputs();
    for (const model::ValueId id : result_.made) {
      const Tensor& output = inside_[id];
      if (!output->grad_fn) {
        result_.output_gradients.emplace_back();
        continue;
      }
      const Tensor gradient = eager_.empty(output.sizes(), output.dtype());
      result_.output_gradients.emplace_back(as_joint(gradient).value);
      add_gradient({output->grad_fn, output->output_number}, gradient);
    }
    std::vector<op::Edge> leaves;
    for (const Tensor& argument : arguments_) leaves.push_back(eager_.gradient_edge(argument));
    for (const op::NodeRef& node : nodes) run_node(*node);
    for (const op::Edge& leaf : leaves) {
      const auto found = leaf.node ? gradients_.find(leaf.node.get()) : gradients_.end();
      const bool has = found != gradients_.end() && found->second[0];
      result_.gradients.push_back(has ? std::optional(as_joint(found->second[0])) : std::nullopt);
    }
  }

  const model::Graph& graph_;
  const model::Region& region_;
  JointSink sink_;
  Eager eager_;
  KeepingRule keeping_;
  Frame inside_;
  std::vector<Tensor> arguments_;  // the region may let go of them in the frame
  std::map<op::Storage*, Tensor> blocks_;
  std::map<uint32_t, JointValueId> value_of_;
  std::map<Node*, Grads> gradients_;
  std::map<std::vector<int64_t>, std::vector<JointValueId>> made_by_;  // forward operators
  std::vector<bool> is_static_;                                        // by value of the model
  std::vector<Place> places_;                                          // by instruction
  Place place_;                                                        // of the kernel that runs
  JointGraph result_;
};

}  // namespace

JointGraph trace_joint_graph(const model::Graph& graph, uint32_t region, const Frame& frame,
                             const op::Environment& environment,
                             const RegionCheckpoints& checkpoints) {
  op::Environment inside = environment;
  inside.blas = {};  // workspaces are the thread's, not the region's
  return JointTracer(graph, region, frame, inside, checkpoints).take();
}

}  // namespace headroom::step
