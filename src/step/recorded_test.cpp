// A replayed operator's kernel is told to the sink with the rows that the law of its class goes by.
#include "step/recorded.h"

#include <gtest/gtest.h>

#include <memory>

namespace headroom::step {
namespace {

// Keeps the last kernel.
class LastKernel : public op::Sink {
 public:
  uint32_t on_allocate(int64_t) override { return next_++; }
  void on_free(uint32_t) override {}
  void on_kernel(const op::KernelWork& work) override { work_ = work; }
  void on_saved(uint32_t) override {}
  void on_module(uint32_t) override {}

  [[nodiscard]] const op::KernelWork& work() const { return work_; }

 private:
  uint32_t next_ = 0;
  op::KernelWork work_{};
};

// What an operator of this kind tells that makes one float32 tensor of these sizes.
op::KernelWork told(op::OpKind kind, std::initializer_list<int64_t> sizes) {
  auto recording = std::make_shared<model::Recording>();
  model::RecordedOutput output;
  output.bytes = 4;
  for (const int64_t size : sizes) {
    output.tensor.sizes.push_back(size);
    output.tensor.strides.push_back(1);
    output.bytes *= size;
  }
  recording->outputs.push_back(output);
  model::Operation operation;
  operation.kind = kind;
  operation.recording = recording;
  LastKernel sink;
  {
    op::Eager eager(sink, {});
    std::vector<op::Tensor> outputs;
    run_recorded(eager, operation, {}, outputs);
  }
  return sink.work();
}

TEST(Recorded, WhatGoesRowByRowSaysHowManyRows) {
  const op::KernelWork work = told(op::OpKind::softmax, {2, 3, 5, 7});
  EXPECT_EQ(work.rows, 2 * 3 * 5);
  EXPECT_EQ(work.bytes_written, 2 * 3 * 5 * 7 * 4);
}

TEST(Recorded, AProductAScalarAndNothingHaveNoRows) {
  EXPECT_EQ(told(op::OpKind::addmm, {8, 16}).rows, 0);
  EXPECT_EQ(told(op::OpKind::softmax, {}).rows, 0);
  EXPECT_EQ(told(op::OpKind::softmax, {3, 0}).rows, 0);
}

// By hand: 5 channels of 6 pixels, side by side by channel, and the copy that has them by pixel.
TEST(Recorded, ACopyThatTurnsItsSourceOverSaysSo) {
  auto recording = std::make_shared<model::Recording>();
  model::RecordedOutput output;
  output.bytes = 120;
  for (const int64_t size : {1, 6, 5}) output.tensor.sizes.push_back(size);
  for (const int64_t stride : {30, 5, 1}) output.tensor.strides.push_back(stride);
  recording->outputs.push_back(output);
  model::Operation operation;
  operation.kind = op::OpKind::clone;
  operation.recording = recording;
  LastKernel sink;
  {
    op::Eager eager(sink, {});
    const op::Tensor inputs[] = {eager.empty_strided({1, 6, 5}, {30, 1, 6}, op::DType::f32)};
    std::vector<op::Tensor> outputs;
    run_recorded(eager, operation, inputs, outputs);
  }
  EXPECT_EQ(sink.work().permuted, (op::Permuted{120, 5}));
}

}  // namespace
}  // namespace headroom::step
