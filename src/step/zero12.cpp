#include "step/zero12.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace headroom::step {

namespace {

using memory::Category;
using op::DType;
using op::Tensor;

constexpr int64_t kStartAlignment = 2;  // nccl_start_alignment_factor

struct Variable {
  Tensor parameter;
  size_t group = 0;
  int64_t offset = 0;  // in its group's block
};

// What the optimizer steps together: one block on every rank.
struct Group {
  std::vector<OptimizedParameter> members;
  int64_t elements = 0;  // padded
  int64_t share = 0;
  Tensor flat;
  Tensor master;  // the rank's share, in float32
};

class Zero12 final : public ParallelMethod {
 public:
  Zero12(const ZeroOptions& options, op::Eager& eager, Recorder& recorder)
      : options_(options), eager_(eager), recorder_(recorder) {}

  [[nodiscard]] bool keeps_parameters_whole() const override { return true; }

  std::vector<OptimizedParameter> construct(Frame&,
                                            std::vector<OptimizedParameter> whole) override {
    groups_.resize(options_.decay_groups ? 2 : 1);
    for (OptimizedParameter& parameter : whole) {
      const size_t group = options_.decay_groups && !parameter.decays ? 1 : 0;
      groups_[group].members.push_back(std::move(parameter));
    }
    std::erase_if(groups_, [](const Group& group) { return group.members.empty(); });
    std::vector<OptimizedParameter> masters;
    for (size_t i = 0; i < groups_.size(); ++i) {
      flatten(i);
      if (options_.offload_optimizer) continue;
      OptimizedParameter master;
      master.tensor = groups_[i].master;
      master.decays = groups_[i].members[0].decays;
      masters.push_back(std::move(master));
    }
    if (options_.offload_optimizer) {
      make_accumulation_block();
      hold_on_host();
      return {};
    }
    // initialize_optimizer_states
    CategoryScope scope(recorder_, Category::temporary);
    std::vector<Tensor> zeros;
    for (const Group& group : groups_) zeros.push_back(eager_.empty({group.share}, DType::f32));
    return masters;
  }

  void begin_forward(const MicroBatch& micro_batch, Frame&) override {
    is_first_ = micro_batch.is_first;
    is_last_ = micro_batch.is_last;
  }

  void accumulated(const Tensor& leaf) override {
    const auto at = index_of_.find(leaf.get());
    if (at == index_of_.end()) return;
    if (buckets_.empty()) make_buckets();
    if (options_.stage == 2) add_to_bucket(variables_[at->second]);
  }

  void end_backward() override {
    if (buckets_.empty()) return;
    if (options_.stage == 1) {
      if (!is_last_) return;
      for (Variable& variable : variables_) {
        if (variable.parameter->grad) add_to_bucket(variable);
      }
    }
    reduce_bucket();
    recorder_.await_all();
    if (!options_.offload_optimizer) keep_or_add_own();
    buckets_.clear();
    own_block_ = Tensor();
    for (Variable& variable : variables_) variable.parameter->grad = Tensor();
  }

  [[nodiscard]] bool clips_gradients() const override { return true; }

  void run_optimizer(const std::function<void()>& step) override {
    op::GradMode no_grad(eager_, false);
    norms_.clear();
    if (!options_.offload_optimizer) step_masters(step);
    for (const Group& group : groups_) {
      if (options_.ranks == 1) break;
      (void)recorder_.begin_collective(op::OpKind::all_gather, group.flat.bytes() / options_.ranks,
                                       group.flat.bytes());
    }
    recorder_.await_all();
  }

 private:
  struct OwnGradient {
    size_t group = 0;
    Tensor part;  // of the rank's share
  };

  void step_masters(const std::function<void()>& step) {
    measure_norms();
    for (size_t i = 0; i < groups_.size(); ++i) {
      Group& group = groups_[i];
      {
        CategoryScope scope(recorder_, Category::gradient);
        const Tensor flat = flat_gradient(i);
        group.master->grad = op::to(eager_, flat, DType::f32);
      }
      std::erase_if(own_, [&](const OwnGradient& own) { return own.group == i; });
      step();
      group.master->grad = Tensor();
      eager_.kernel(op::OpKind::copy, 0, group.master.bytes(), group.share * 2);
    }
  }

  // all_grad_tensors: those of the first micro-batch stay, later ones are added to them.
  void keep_or_add_own() {
    const bool is_first = own_.empty();
    for (const Variable& variable : variables_) {
      const Tensor& gradient = variable.parameter->grad;
      if (!is_own(variable) || !gradient) continue;
      if (is_first) {
        own_.push_back({variable.group, own_part(variable)});
      } else {
        eager_.kernel(op::OpKind::add, static_cast<double>(gradient.elements()),
                      2 * gradient.bytes(), gradient.bytes());
      }
    }
  }

  void flatten(size_t index) {
    Group& group = groups_[index];
    const DType type = group.members[0].tensor.dtype();
    int64_t elements = 0;
    for (const OptimizedParameter& member : group.members) elements += member.tensor.elements();
    const int64_t multiple = kStartAlignment * options_.ranks;
    group.elements = (elements + multiple - 1) / multiple * multiple;
    group.share = group.elements / options_.ranks;
    recorder_.empty_cache();
    if (group.elements * element_size(type) > options_.device_bytes - recorder_.live_bytes()) {
      move_to_host(group);
    }
    {
      CategoryScope scope(recorder_, Category::parameter);
      Tensor padding;
      if (group.elements > elements) padding = eager_.empty({group.elements - elements}, type);
      group.flat = eager_.empty({group.elements}, type);
      eager_.kernel(op::OpKind::cat, 0, group.flat.bytes(), group.flat.bytes());
    }
    int64_t offset = 0;
    for (const OptimizedParameter& member : group.members) {
      // The parameter is a view of the block from here on, and its own block goes.
      member.tensor->storage = group.flat->storage;
      index_of_[member.tensor.get()] = variables_.size();
      variables_.push_back({member.tensor, index, offset});
      offset += member.tensor.elements();
    }
    const Category masters =
        options_.offload_optimizer ? Category::temporary : Category::optimizer_state;
    CategoryScope scope(recorder_, masters);
    const Tensor cloned = eager_.empty({group.share}, type);
    // To the host a copy goes as it is, and is widened there.
    if (!options_.offload_optimizer) group.master = op::to(eager_, cloned, DType::f32);
  }

  void move_to_host(Group& group) {
    CategoryScope scope(recorder_, Category::parameter);
    for (const OptimizedParameter& member : group.members) {
      member.tensor->storage = eager_.empty({1}, DType::f32)->storage;
    }
    recorder_.empty_cache();
  }

  // setup_buckets
  void make_buckets() {
    CategoryScope scope(recorder_, Category::communication);
    const DType type = variables_[0].parameter.dtype();
    for (int i = 0; i < (options_.overlap_comm ? 2 : 1); ++i) {
      buckets_.push_back(eager_.empty({options_.reduce_bucket_elements}, type));
    }
    filled_ = 0;
    current_ = 0;
    waiting_.clear();
  }

  // reduce_independent_p_g_buckets_and_remove_grads
  void add_to_bucket(Variable& variable) {
    const int64_t elements = variable.parameter.elements();
    if (filled_ + elements > options_.reduce_bucket_elements) {
      reduce_bucket();
      if (options_.overlap_comm) current_ = 1 - current_;
    }
    if (elements <= options_.reduce_bucket_elements) {
      show_gradient(variable, buckets_[current_]);
      eager_.kernel(op::OpKind::copy, 0, elements * 2, elements * 2);
    } else if (options_.offload_optimizer) {
      CategoryScope scope(recorder_, Category::communication);
      const int64_t bytes = variable.parameter->grad.bytes();
      show_gradient(variable, eager_.empty({elements}, variable.parameter.dtype()));
      eager_.kernel(op::OpKind::clone, 0, bytes, bytes);
    }
    filled_ += elements;
    waiting_.push_back(&variable);
  }

  // reduce_ipg_grads
  void reduce_bucket() {
    if (waiting_.empty()) return;
    recorder_.await_all();
    copy_for_several_ranks();
    if (!options_.overlap_comm) recorder_.await_all();
    for (Variable* variable : waiting_) {
      if (is_own(*variable) && options_.offload_optimizer) {
        if (!is_first_ || !is_last_) accumulate_on_host(*variable);
        if (is_last_) send_to_host(*variable);
      } else if (is_own(*variable)) {
        keep_own(*variable);
      } else if (options_.stage == 2) {
        variable->parameter->grad = Tensor();
      }
    }
    waiting_.clear();
    filled_ = 0;
  }

  // average_tensor, allreduce_and_scatter: what lies behind one another and belongs to one rank is
  // a slice; slices are sent together up to the bucket's size, and several are copied into one
  // block for that.
  void copy_for_several_ranks() {
    int64_t together = 0;
    size_t slices = 0;
    const auto send = [&] {
      if (slices == 0) return;
      if (slices > 1) {
        CategoryScope scope(recorder_, Category::communication);
        (void)eager_.empty({together}, waiting_[0]->parameter.dtype());
        eager_.kernel(op::OpKind::cat, 0, 2 * together, 2 * together);
      }
      const int64_t bytes = together * element_size(waiting_[0]->parameter.dtype());
      if (options_.ranks > 1)
        (void)recorder_.begin_collective(op::OpKind::all_reduce, bytes, bytes);
      together = 0;
      slices = 0;
    };
    for (const int64_t slice : slices_of_ranks()) {
      together += slice;
      ++slices;
      if (together > options_.reduce_bucket_elements) send();
    }
    send();
  }

  std::vector<int64_t> slices_of_ranks() const {
    std::vector<int64_t> slices;
    int64_t last_rank = -1;
    for (const Variable* variable : waiting_) {
      const int64_t share = groups_[variable->group].share;
      int64_t begin = variable->offset;
      const int64_t end = begin + variable->parameter.elements();
      while (begin < end) {
        const int64_t rank = begin / share;
        const int64_t elements = std::min(end, (rank + 1) * share) - begin;
        if (rank == last_rank) {
          slices.back() += elements;
        } else {
          slices.push_back(elements);
        }
        last_rank = rank;
        begin += elements;
      }
    }
    return slices;
  }

  [[nodiscard]] bool is_own(const Variable& variable) const {
    return variable.offset < groups_[variable.group].share;
  }

  // copy_grads_in_partition
  void keep_own(const Variable& variable) {
    if (!own_block_) {
      int64_t elements = 0;
      for (const Variable& other : variables_) {
        if (is_own(other)) elements += other.parameter.elements();
      }
      CategoryScope scope(recorder_, Category::gradient);
      own_block_ = eager_.empty({elements}, variable.parameter.dtype());
    }
    show_gradient(variable, own_block_);
    const int64_t bytes = variable.parameter->grad.bytes();
    eager_.kernel(op::OpKind::copy, 0, bytes, bytes);
  }

  // temp_grad_buffer_for_gpu_offload
  void make_accumulation_block() {
    int64_t most = 0;
    for (const Variable& variable : variables_) {
      most = std::max(most, variable.parameter.elements());
    }
    CategoryScope scope(recorder_, Category::communication);
    accumulation_block_ = eager_.empty({most}, groups_[0].flat.dtype());
  }

  // Masters, their gradients, a copy in half precision for the way back, two states of Adam's; a
  // block as large as the device's for adding up.
  void hold_on_host() {
    using enum HostMemory::Kind;
    for (const Group& group : groups_) {
      for (const int64_t bytes : {4, 4, 2}) recorder_.hold_on_host(bytes * group.share, pinned);
      for (int i = 0; i < 2; ++i) recorder_.hold_on_host(4 * group.share, pageable);
    }
    recorder_.hold_on_host(accumulation_block_.bytes(), pinned);
  }

  // async_accumulate_grad_in_cpu_via_gpu: a block for each of the rank's gradients, whole.
  void accumulate_on_host(const Variable& variable) {
    if (std::exchange(holds_gradients_[variable.parameter.get()], true)) return;
    recorder_.hold_on_host(variable.parameter.bytes(), HostMemory::Kind::pinned);
  }

  // set_norm_for_param_grad_in_gpu, has_inf_or_nan (its largest and its least element) and
  // async_inplace_copy_grad_to_fp32_buffer_from_gpu. A norm stays to the step.
  void send_to_host(const Variable& variable) {
    CategoryScope scope(recorder_, Category::communication);
    const Tensor& gradient = variable.parameter->grad;
    const Tensor part = own_part(variable);
    {
      const Tensor wide = op::to(eager_, part, DType::f64);
      eager_.kernel(op::OpKind::sum, 2.0 * static_cast<double>(wide.elements()), wide.bytes(), 8);
      norms_.push_back(eager_.empty({}, DType::f64));
    }
    const auto elements = static_cast<double>(part.elements());
    for (int i = 0; i < 2; ++i) eager_.kernel(op::OpKind::max, elements, gradient.bytes(), 2);
    (void)op::to(eager_, part, DType::f32);
    variable.parameter->grad = Tensor();
  }

  void show_gradient(const Variable& variable, const Tensor& block) {
    const Tensor& parameter = variable.parameter;
    parameter->grad = eager_.alias(block, parameter.sizes(), parameter.strides());
    parameter->grad->base = Tensor();
  }

  // The last of them may reach into the next rank's share.
  Tensor own_part(const Variable& variable) {
    const Tensor& gradient = variable.parameter->grad;
    const int64_t room = groups_[variable.group].share - variable.offset;
    if (gradient.elements() <= room) return gradient;
    Tensor part = eager_.alias(gradient, {room}, {1});
    part->base = Tensor();
    return part;
  }

  // get_grad_norm_direct
  void measure_norms() {
    CategoryScope scope(recorder_, Category::temporary);
    std::vector<Tensor> norms;
    for (const OwnGradient& own : own_) {
      const Tensor wide = op::to(eager_, own.part, DType::f64);
      eager_.kernel(op::OpKind::sum, 2.0 * static_cast<double>(wide.elements()), wide.bytes(), 8);
      norms.push_back(eager_.empty({}, DType::f64));
    }
  }

  Tensor flat_gradient(size_t group) {
    int64_t elements = 0;
    for (const OwnGradient& own : own_) {
      if (own.group == group) elements += own.part.elements();
    }
    const DType type = groups_[group].flat.dtype();
    Tensor padding;
    if (elements < groups_[group].share) {
      padding = eager_.empty({groups_[group].share - elements}, type);
    }
    Tensor flat = eager_.empty({groups_[group].share}, type);
    eager_.kernel(op::OpKind::cat, 0, flat.bytes(), flat.bytes());
    return flat;
  }

  const ZeroOptions options_;
  op::Eager& eager_;
  Recorder& recorder_;
  std::vector<Group> groups_;
  std::vector<Variable> variables_;
  std::unordered_map<const op::TensorImpl*, size_t> index_of_;  // into variables_
  std::vector<Tensor> buckets_;                                 // while backward runs
  size_t current_ = 0;                                          // the bucket that is filled
  int64_t filled_ = 0;                                          // elements in it
  std::vector<Variable*> waiting_;                              // whose gradients are in it
  bool is_first_ = true;                                        // of a step's micro-batches
  bool is_last_ = true;
  Tensor own_block_;              // grads_in_partition
  std::vector<OwnGradient> own_;  // averaged_gradients
  Tensor accumulation_block_;     // offloaded: of the largest one
  std::vector<Tensor> norms_;     // offloaded: of own gradients
  std::unordered_map<const op::TensorImpl*, bool> holds_gradients_;  // offloaded: the host, of it
};

}  // namespace

std::unique_ptr<ParallelMethod> make_zero12(const model::Graph&, const ZeroOptions& options,
                                            op::Eager& eager, Recorder& recorder) {
  return std::make_unique<Zero12>(options, eager, recorder);
}

}  // namespace headroom::step
