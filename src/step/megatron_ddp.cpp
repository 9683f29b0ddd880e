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
};

class MegatronDdp final : public ParallelMethod {
 public:
  MegatronDdp(const MegatronOptions& options, op::Eager& eager, Recorder& recorder)
      : options_(options), eager_(eager), recorder_(recorder) {}

  [[nodiscard]] bool keeps_parameters_whole() const override { return true; }

  std::vector<OptimizedParameter> construct(Frame&,
                                            std::vector<OptimizedParameter> whole) override {
    place(std::move(whole));
    make_blocks();
    return make_masters();
  }

  void begin_forward(const MicroBatch& micro_batch, Frame&) override {
    is_last_ = micro_batch.is_last;
  }

  void accumulated(const Tensor& leaf) override {
    if (!leaf->is_parameter || !leaf->grad) return;
    eager_.kernel(op::OpKind::add, static_cast<double>(leaf.elements()), 3 * leaf.bytes(),
                  2 * leaf.bytes());
    leaf->grad = Tensor();
  }

  void end_backward() override {
    if (!is_last_ || options_.data_ranks <= 1) return;
    const auto kind =
        options_.distributed_optimizer ? op::OpKind::reduce_scatter : op::OpKind::all_reduce;
    for (const Bucket& bucket : buckets_) {
      const int64_t bytes = (bucket.end - bucket.begin) * op::element_size(options_.gradients);
      (void)recorder_.begin_collective(
          kind, bytes, options_.distributed_optimizer ? bytes / options_.data_ranks : bytes);
    }
    recorder_.await_all();
  }

  [[nodiscard]] bool clips_gradients() const override { return true; }

  void run_optimizer(const std::function<void()>& step) override {
    op::GradMode no_grad(eager_, false);
    for (const auto& [master, begin] : masters_) {
      master->grad = eager_.alias(gradients_, master.sizes(), master.strides());
    }
    step();
    for (const auto& [master, begin] : masters_) {
      eager_.kernel(op::OpKind::copy, 0, master.bytes(), master.bytes() / 2);
      master->grad = Tensor();
    }
    if (!options_.distributed_optimizer || options_.data_ranks <= 1) return;
    (void)recorder_.begin_collective(
        op::OpKind::all_gather, parameters_.bytes() / options_.data_ranks, parameters_.bytes());
    recorder_.await_all();
  }

 private:
  [[nodiscard]] int64_t bucket_limit() const {
    if (!options_.overlap_grad_reduce) return std::numeric_limits<int64_t>::max();
    return std::max(kBucketElements, kBucketElementsPerRank * options_.data_ranks);
  }

  // In the order in which backward is expected to need them: the last first.
  void place(std::vector<OptimizedParameter> whole) {
    const bool pads = options_.distributed_optimizer;
    const int64_t multiple = std::lcm(sharing_ranks(), kBucketAlignment);
    int64_t at = 0;
    int64_t begin = 0;
    const auto close = [&] {
      if (at == begin) return;
      if (pads) at = rounded_up(at, multiple);
      buckets_.push_back({begin, at});
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
      placed_.push_back(std::move(placed));
      if (at - begin >= bucket_limit() || stands_alone) close();
    }
    close();
    elements_ = at;
  }

  void make_blocks() {
    if (placed_.empty()) return;
    const DType type = placed_[0].parameter.tensor.dtype();
    if (options_.distributed_optimizer) {
      CategoryScope scope(recorder_, Category::parameter);
      parameters_ = eager_.empty({elements_}, type);
    }
    {
      CategoryScope scope(recorder_, Category::gradient);
      gradients_ = eager_.empty({elements_}, options_.gradients);
    }
    if (!options_.distributed_optimizer) return;
    // Each is a view of the block from here on, and its own block goes.
    for (const Placed& placed : placed_) {
      placed.parameter.tensor->storage = parameters_->storage;
    }
  }

  [[nodiscard]] int64_t sharing_ranks() const {
    return std::max<int64_t>(options_.data_ranks / options_.instances, 1);
  }

  // Of what this rank steps: everything, or its share of each bucket.
  [[nodiscard]] int64_t stepped_elements(const Placed& placed) const {
    if (!options_.distributed_optimizer) return placed.end - placed.begin;
    int64_t elements = 0;
    for (const Bucket& bucket : buckets_) {
      const int64_t share = (bucket.end - bucket.begin) / sharing_ranks();
      const int64_t begin = std::max(placed.begin, bucket.end - share);
      elements += std::max<int64_t>(std::min(placed.end, bucket.end) - begin, 0);
    }
    return elements;
  }

  // By group: what decays, and what does not; each in the model's order.
  std::vector<OptimizedParameter> make_masters() {
    std::vector<OptimizedParameter> masters;
    for (const bool decays : {true, false}) {
      for (size_t i = placed_.size(); i-- > 0;) {
        if (placed_[i].parameter.decays == decays) make_master(placed_[i], masters);
      }
    }
    return masters;
  }

  void make_master(const Placed& placed, std::vector<OptimizedParameter>& masters) {
    const int64_t elements = stepped_elements(placed);
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
    masters_.emplace_back(master.tensor, placed.begin);
    masters.push_back(std::move(master));
  }

  const MegatronOptions options_;
  op::Eager& eager_;
  Recorder& recorder_;
  std::vector<Placed> placed_;
  std::vector<Bucket> buckets_;
  int64_t elements_ = 0;
  Tensor parameters_;  // with the distributed optimizer
  Tensor gradients_;
  std::vector<std::pair<Tensor, int64_t>> masters_;
  bool is_last_ = true;  // of a step's micro-batches
};

}  // namespace

std::unique_ptr<ParallelMethod> make_megatron_ddp(const model::Graph&,
                                                  const MegatronOptions& options, op::Eager& eager,
                                                  Recorder& recorder) {
  return std::make_unique<MegatronDdp>(options, eager, recorder);
}

}  // namespace headroom::step
