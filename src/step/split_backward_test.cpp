// A backward pass in two parts, of a graph with everything that such a pass treats differently.
// That real stages do the same is held in tests/python/test_pipeline.py.
#include "step/split_backward.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "operator/functional.h"

namespace headroom::step {
namespace {

using op::Tensor;
using Names = std::vector<std::string>;

// Which blocks there are, and which were kept for backward.
struct Book : op::Sink {
  std::set<uint32_t> live, saved;
  uint32_t made = 0;

  uint32_t on_allocate(int64_t) override {
    live.insert(made);
    return made++;
  }
  void on_free(uint32_t buffer) override { live.erase(buffer); }
  void on_kernel(const op::KernelWork&) override {}
  void on_saved(uint32_t buffer) override { saved.insert(buffer); }
  void on_module(uint32_t) override {}

  [[nodiscard]] bool has(const std::vector<uint32_t>& buffers) const {
    return std::ranges::all_of(buffers, [&](uint32_t buffer) { return live.contains(buffer); });
  }
  [[nodiscard]] bool has_any(const std::vector<uint32_t>& buffers) const {
    return std::ranges::any_of(buffers, [&](uint32_t buffer) { return live.contains(buffer); });
  }
};

class SplitBackward : public testing::Test {
 protected:
  SplitBackward() : eager_(book_, {}), engine_(eager_, options()) {
    input_ = leaf({4, 8});
    first_ = leaf({8, 8});
    bias_ = leaf({8});
    second_ = leaf({8, 8});
    scale_ = leaf({8});
    run_forward();
  }

  EngineOptions options() {
    EngineOptions options;
    options.hooks.before = [this](const op::Node& node) { ran_.emplace_back(node.name); };
    return options;
  }

  Tensor leaf(const op::Dims& sizes) {
    Tensor made = eager_.empty(sizes, op::DType::bf16);
    made->requires_grad = true;
    return made;
  }

  static uint32_t block_of(const Tensor& tensor) { return tensor->storage->buffer; }

  // Two linear layers, a product with what comes of a parameter alone, a frozen layer and a loss.
  void run_forward() {
    const Tensor hidden = op::relu(eager_, op::linear(eager_, input_, first_, bias_));
    const Tensor plain = op::linear(eager_, hidden, second_, Tensor());
    const Tensor squared = op::mul(eager_, scale_, scale_);
    const Tensor scaled = op::mul(eager_, plain, squared);
    const Tensor frozen = eager_.empty({8, 8}, op::DType::bf16);
    const Tensor out = op::linear(eager_, scaled, frozen, Tensor());
    const std::vector<int> all{0, 1};
    loss_ = op::mean(eager_, op::pow(eager_, out, 3), all, false);
    needed_later_ = {block_of(hidden), block_of(plain), block_of(squared)};
    of_the_loss_ = {block_of(out), block_of(frozen)};
  }

  std::vector<WeightGroup> run_first_part() {
    const std::vector<Tensor> parameters{first_, bias_, second_, scale_};
    return backward_to_input(engine_, eager_, loss_, op::full(eager_, {}, op::DType::bf16), input_,
                             parameters);
  }

  Book book_;
  op::Eager eager_;
  Engine engine_;
  Names ran_;
  Tensor input_, first_, bias_, second_, scale_, loss_;
  std::vector<uint32_t> needed_later_, of_the_loss_;
};

TEST_F(SplitBackward, TheFirstPartRunsWhatLeadsToTheInputAlone) {
  const auto groups = run_first_part();
  EXPECT_EQ(ran_, (Names{"MeanBackward1", "PowBackward0", "MmBackward0", "MulBackward0",
                         "MmBackward0", "ReluBackward0", "AddmmBackward0"}));
  EXPECT_TRUE(input_->grad);
  for (const Tensor& parameter : {first_, bias_, second_, scale_}) EXPECT_FALSE(parameter->grad);
  EXPECT_FALSE(loss_.requires_grad());
}

TEST_F(SplitBackward, AGroupHasTheParametersOfANodeAndWhatArrivedThere) {
  const auto groups = run_first_part();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].parameters.size(), 2u);  // weight and bias
  for (const WeightGroup& group : groups) {
    ASSERT_EQ(group.starts.size(), 1u);
    ASSERT_EQ(group.arrived[0].size(), 1u);
    ASSERT_TRUE(group.arrived[0][0]);
    EXPECT_TRUE(book_.saved.contains(block_of(group.arrived[0][0])));
  }
  EXPECT_EQ(groups[0].parameters[0]->variable.get(), first_.get());
  EXPECT_EQ(groups[1].parameters[0]->variable.get(), second_.get());
  EXPECT_EQ(groups[2].parameters[0]->variable.get(), scale_.get());
}

TEST_F(SplitBackward, WhatWasSavedStaysUntilTheSecondPartAndTheLossDoesNot) {
  EXPECT_TRUE(book_.has(needed_later_) && book_.has(of_the_loss_));
  auto groups = run_first_part();
  EXPECT_TRUE(book_.has(needed_later_));
  EXPECT_FALSE(book_.has_any(of_the_loss_));
  backward_to_weights(engine_, eager_, std::move(groups), [](const Tensor&) {});
  EXPECT_FALSE(book_.has_any(needed_later_));
}

TEST_F(SplitBackward, TheSecondPartGoesGroupByGroupFromWhatArrived) {
  auto groups = run_first_part();
  ran_.clear();
  std::vector<const op::TensorImpl*> accumulated;
  backward_to_weights(engine_, eager_, std::move(groups),
                      [&](const Tensor& parameter) { accumulated.push_back(parameter.get()); });
  EXPECT_EQ(ran_, (Names{"AddmmBackward0", "TransposeBackward0", "MmBackward0",
                         "TransposeBackward0", "MulBackward0", "MulBackward0"}));
  EXPECT_EQ(accumulated, (std::vector<const op::TensorImpl*>{first_.get(), bias_.get(),
                                                             second_.get(), scale_.get()}));
  for (const Tensor& parameter : {first_, bias_, second_, scale_}) EXPECT_TRUE(parameter->grad);
}

// Nothing of the first run is left on the nodes that the whole pass goes over, too.
TEST_F(SplitBackward, AWholePassMayFollow) {
  (void)run_first_part();
  run_forward();
  ran_.clear();
  engine_.run(loss_, op::full(eager_, {}, op::DType::bf16));
  EXPECT_EQ(std::ranges::count(ran_, "MulBackward0"), 2);
  EXPECT_EQ(std::ranges::count(ran_, "TransposeBackward0"), 2);
  EXPECT_TRUE(scale_->grad);
  EXPECT_FALSE(book_.has_any(needed_later_));
}

}  // namespace
}  // namespace headroom::step
