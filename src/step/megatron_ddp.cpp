#include "step/megatron_ddp.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace headroom::step {

namespace {

using memory::Category;
using op::DType;
using op::Tensor;

constexpr int64_t kParameterAlignment = 64;  // pad_param_start
constexpr int64_t kBucketAlignment = 128;    // pad_bucket_end
constexpr int64_t kBucketElements = 40'000'000;
constexpr int64_t kBucketElementsPerRank = 1'000'000;

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Placed {
  OptimizedParameter parameter;
  int64_t begin = 0;  // in the blocks
  int64_t end = 0;
};

struct Bucket {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t matrices = 0;  // whose gradients it waits for
  int64_t missing = 0;   // of them, in this backward pass
  bool is_begun = false;
};

// Parameters that the same ranks hold: one block of gradients, and with the distributed optimizer
// one of parameters.
struct Blocks {
  int64_t ranks = 1;  // that hold them
  int32_t apart = 1;
  bool has_buckets = false;
  std::vector<Placed> placed;
  std::vector<Bucket> buckets;
  int64_t elements = 0;
  Tensor parameters;
  Tensor gradients;
};

struct Master {
  Tensor tensor;
  Tensor gradients;  // the block that its gradient is a view of
};

class MegatronDdp final : public ParallelMethod {
 public:
  MegatronDdp(const MegatronOptions& options, op::Eager& eager, Recorder& recorder)
      : options_(options), eager_(eager), recorder_(recorder) {}

  [[nodiscard]] bool keeps_parameters_whole() const override { return true; }

  std::vector<OptimizedParameter> construct(Frame&,
                                            std::vector<OptimizedParameter> whole) override {
    const uint32_t last_chunk = whole.empty() ? 0 : whole.back().chunk;
    for (uint32_t chunk = 0; chunk <= last_chunk; ++chunk) {
      for (const bool of_experts : {false, true}) {
        std::vector<OptimizedParameter> mine;
        for (const OptimizedParameter& parameter : whole) {
          if (parameter.chunk != chunk || parameter.is_expert != of_experts) continue;
          mine.push_back(parameter);
        }
        if (mine.empty()) continue;
        Blocks& blocks = blocks_.emplace_back();
        blocks.ranks = of_experts ? options_.expert_ranks : options_.data_ranks;
        blocks.apart = of_experts ? options_.expert_apart : options_.data_apart;
        blocks.has_buckets = options_.overlap_grad_reduce && chunk == 0;
        place(std::move(mine), blocks);
      }
    }
    shared_elements_ = elements_of_shared_embedding(whole);
    whole.clear();
    index_matrices();
    for (Blocks& blocks : blocks_) make_blocks(blocks);
    return make_masters();
  }

  // What an optimizer kept of the step before goes with the next one's beginning.
  [[nodiscard]] bool is_steady_at_once() const override { return !copies_gradients(); }

  void begin_forward(const MicroBatch& micro_batch, Frame&) override {
    if (micro_batch.is_first) {
      copied_gradients_.clear();
      waiting_ = 0;
      for (Blocks& blocks : blocks_) {
        for (Bucket& bucket : blocks.buckets) {
          bucket.missing = bucket.matrices;
          bucket.is_begun = false;
        }
      }
      if (options_.overlap_param_gather) gather_parameters();
    }
    ++waiting_;
    has_last_ = micro_batch.is_last;
  }

  void accumulated(const Tensor& leaf) override {
    if (!leaf->is_parameter || !leaf->grad) return;
    eager_.kernel(op::OpKind::add, static_cast<double>(leaf.elements()), 3 * leaf.bytes(),
                  2 * leaf.bytes());
    leaf->grad = Tensor();
  }

  // Of the step's last backward pass: what the node before this one made is there.
  void before_backward(op::Node& node) override {
    if (!options_.overlap_grad_reduce || !has_last_ || waiting_ != 1) return;
    for (const BucketPlace& at : ready_) {
      reduce(blocks_[at.blocks], blocks_[at.blocks].buckets[at.bucket]);
    }
    ready_.clear();
    for (const op::Tensor& saved : node.saved) {
      const auto at = buckets_by_matrix_.find(saved.get());
      if (at == buckets_by_matrix_.end()) continue;
      Bucket& bucket = blocks_[at->second.blocks].buckets[at->second.bucket];
      if (--bucket.missing == 0) ready_.push_back(at->second);
    }
  }

  void end_backward() override {
    // Of a pipeline several wait for their backward pass when the last has run forward.
    --waiting_;
    if (!has_last_ || waiting_ > 0) return;
    ready_.clear();
    for (Blocks& blocks : blocks_) {
      for (Bucket& bucket : blocks.buckets) reduce(blocks, bucket);
    }
    recorder_.await_all();
    reduce_embedding();
  }

  [[nodiscard]] bool clips_gradients() const override { return true; }

  void run_optimizer(const std::function<void()>& step) override {
    op::GradMode no_grad(eager_, false);
    for (const Master& master : masters_) master.tensor->grad = gradient_of(master);
    step();
    for (const Master& master : masters_) {
      eager_.kernel(op::OpKind::copy, 0, master.tensor.bytes(), master.tensor.bytes() / 2);
      master.tensor->grad = Tensor();
    }
    if (options_.overlap_param_gather) return;  // beside the next step's forward passes
    gather_parameters();
    recorder_.await_all();
  }

 private:
  void gather_parameters() {
    if (!options_.distributed_optimizer) return;
    for (const Blocks& blocks : blocks_) {
      if (blocks.ranks <= 1) continue;
      (void)recorder_.begin_collective(op::OpKind::all_gather,
                                       blocks.parameters.bytes() / blocks.ranks,
                                       blocks.parameters.bytes(), group_of(blocks));
    }
  }

  void reduce(const Blocks& blocks, Bucket& bucket) {
    if (blocks.ranks <= 1 || std::exchange(bucket.is_begun, true)) return;
    const bool shares = options_.distributed_optimizer;
    const int64_t bytes = (bucket.end - bucket.begin) * op::element_size(options_.gradients);
    (void)recorder_.begin_collective(shares ? op::OpKind::reduce_scatter : op::OpKind::all_reduce,
                                     bytes, shares ? bytes / blocks.ranks : bytes,
                                     group_of(blocks));
  }

  static RankGroup group_of(const Blocks& blocks) {
    return {static_cast<int32_t>(blocks.ranks), blocks.apart};
  }

  // Where first and last stage hold one table between them, which is the first parameter of the one
  // and the last matrix of the other (_allreduce_word_embedding_grads in
  // megatron/core/distributed/finalize_model_grads.py).
  [[nodiscard]] int64_t elements_of_shared_embedding(
      const std::vector<OptimizedParameter>& whole) const {
    if (options_.embedding_group.count == 0) return 0;
    const auto table = std::ranges::find_if(whole, [](const OptimizedParameter& parameter) {
      return parameter.is_embedding || parameter.is_lm_head;
    });
    return table == whole.end() ? 0 : table->tensor.elements();
  }

  void reduce_embedding() {
    if (shared_elements_ == 0) return;
    const int64_t bytes = shared_elements_ * op::element_size(options_.gradients);
    (void)recorder_.begin_collective(op::OpKind::all_reduce, bytes, bytes,
                                     options_.embedding_group);
    recorder_.await_all();
  }

  // Where matrices' gradients go; vectors' come with them.
  void index_matrices() {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Blocks& blocks = blocks_[i];
      for (const Placed& placed : blocks.placed) {
        if (!placed.parameter.decays || placed.parameter.is_embedding) continue;
        const auto bucket = std::ranges::find_if(
            blocks.buckets, [&](const Bucket& of) { return placed.begin < of.end; });
        ++bucket->matrices;
        buckets_by_matrix_[placed.parameter.tensor.get()] = {
            i, static_cast<size_t>(bucket - blocks.buckets.begin())};
      }
    }
  }

  // main_grad.float(): a view where gradients are float32, else a copy until zero_grad().
  [[nodiscard]] bool copies_gradients() const { return options_.gradients != DType::f32; }

  Tensor gradient_of(const Master& master) {
    if (!copies_gradients()) {
      return eager_.alias(master.gradients, master.tensor.sizes(), master.tensor.strides());
    }
    CategoryScope scope(recorder_, Category::gradient);
    const Tensor copy = eager_.empty(master.tensor.sizes(), DType::f32);
    eager_.kernel(op::OpKind::cast, 0, copy.bytes() / 2, copy.bytes());
    copied_gradients_.push_back(copy);
    return copy;
  }

  [[nodiscard]] int64_t bucket_limit(const Blocks& blocks) const {
    if (!blocks.has_buckets) return std::numeric_limits<int64_t>::max();
    return std::max(kBucketElements, kBucketElementsPerRank * blocks.ranks);
  }

  [[nodiscard]] int64_t sharing_ranks(const Blocks& blocks) const {
    return std::max<int64_t>(blocks.ranks / options_.instances, 1);
  }

  // In the order in which backward is expected to need them: the last first.
  void place(std::vector<OptimizedParameter> whole, Blocks& blocks) const {
    const bool pads = options_.distributed_optimizer;
    const int64_t multiple = std::lcm(sharing_ranks(blocks), kBucketAlignment);
    int64_t at = 0;
    int64_t begin = 0;
    const auto close = [&] {
      if (at == begin) return;
      if (pads) at = rounded_up(at, multiple);
      blocks.buckets.push_back({begin, at});
      begin = at;
    };
    for (size_t i = whole.size(); i-- > 0;) {
      Placed placed{std::move(whole[i]), 0, 0};
      const bool stands_alone = pads && options_.shares_embedding &&
                                (placed.parameter.is_embedding || placed.parameter.is_lm_head);
      if (pads) at = rounded_up(at, kParameterAlignment);
      if (stands_alone) close();
      placed.begin = at;
      at += placed.parameter.tensor.elements();
      placed.end = at;
      blocks.placed.push_back(std::move(placed));
      if (at - begin >= bucket_limit(blocks) || stands_alone) close();
    }
    close();
    blocks.elements = at;
  }

  void make_blocks(Blocks& blocks) {
    if (options_.distributed_optimizer) {
      CategoryScope scope(recorder_, Category::parameter);
      blocks.parameters =
          eager_.empty({blocks.elements}, blocks.placed[0].parameter.tensor.dtype());
    }
    {
      CategoryScope scope(recorder_, Category::gradient);
      blocks.gradients = eager_.empty({blocks.elements}, options_.gradients);
    }
    if (!options_.distributed_optimizer) return;
    // Each is a view of the block from here on, and its own block goes.
    for (const Placed& placed : blocks.placed) {
      placed.parameter.tensor->storage = blocks.parameters->storage;
    }
  }

  // Of what this rank steps: everything, or its share of each bucket.
  [[nodiscard]] int64_t stepped_elements(const Placed& placed, const Blocks& blocks) const {
    if (!options_.distributed_optimizer) return placed.end - placed.begin;
    int64_t elements = 0;
    for (const Bucket& bucket : blocks.buckets) {
      const int64_t share = (bucket.end - bucket.begin) / sharing_ranks(blocks);
      const int64_t begin = std::max(placed.begin, bucket.end - share);
      elements += std::max<int64_t>(std::min(placed.end, bucket.end) - begin, 0);
    }
    return elements;
  }

  // By group: what decays, and what does not; each in the model's order.
  std::vector<OptimizedParameter> make_masters() {
    std::vector<OptimizedParameter> masters;
    for (const Blocks& blocks : blocks_) {
      for (const bool decays : {true, false}) {
        for (size_t i = blocks.placed.size(); i-- > 0;) {
          const Placed& placed = blocks.placed[i];
          if (placed.parameter.decays == decays) make_master(placed, blocks, masters);
        }
      }
    }
    return masters;
  }

  void make_master(const Placed& placed, const Blocks& blocks,
                   std::vector<OptimizedParameter>& masters) {
    const int64_t elements = stepped_elements(placed, blocks);
    if (elements == 0) return;
    CategoryScope scope(recorder_, Category::optimizer_state);
    OptimizedParameter master = placed.parameter;
    const DType type = placed.parameter.tensor.dtype();
    if (type == DType::f32) {
      master.tensor = eager_.alias(placed.parameter.tensor, {elements}, {1});
    } else {
      const Tensor cloned = eager_.empty({elements}, type);
      master.tensor = op::to(eager_, cloned, DType::f32);
    }
    masters_.push_back({master.tensor, blocks.gradients});
    masters.push_back(std::move(master));
  }

  const MegatronOptions options_;
  op::Eager& eager_;
  Recorder& recorder_;
  std::vector<Blocks> blocks_;
  std::vector<Master> masters_;
  std::vector<Tensor> copied_gradients_;
  int64_t shared_elements_ = 0;  // of the embedding that another stage holds as well
  struct BucketPlace {
    size_t blocks = 0;
    size_t bucket = 0;
  };
  std::unordered_map<const op::TensorImpl*, BucketPlace> buckets_by_matrix_;
  std::vector<BucketPlace> ready_;  // when the node that runs now is done
  int64_t waiting_ = 0;             // micro-batches that have run forward alone
  bool has_last_ = true;            // of a step's micro-batches, forward
};

}  // namespace

std::unique_ptr<ParallelMethod> make_megatron_ddp(const model::Graph&,
                                                  const MegatronOptions& options, op::Eager& eager,
                                                  Recorder& recorder) {
  return std::make_unique<MegatronDdp>(options, eager, recorder);
}

}  // namespace headroom::step
