#include "operator/permuted.h"

#include <gtest/gtest.h>

#include "operator/functional.h"

namespace headroom::op {
namespace {

class Nothing : public Sink {
 public:
  uint32_t on_allocate(int64_t) override { return next_++; }
  void on_free(uint32_t) override {}
  void on_kernel(const KernelWork& work) override { last = work; }
  void on_saved(uint32_t) override {}
  void on_module(uint32_t) override {}
  KernelWork last{};

 private:
  uint32_t next_ = 0;
};

TEST(Permuted, AMatrixOnItsSideIsReadAStrideApart) {
  Nothing sink;
  Eager e(sink, {});
  const Tensor x = e.empty({1, 96, 3136}, DType::f32);
  const Tensor side = transpose(e, x, 1, 2);
  EXPECT_EQ(permuted_into_rows(side), (Permuted{int64_t{96} * 3136 * 4, 96}));
  EXPECT_EQ(permuted_into_rows(x), Permuted{});
  EXPECT_EQ(permuted_into(side, side), Permuted{});
}

// Heads change places with tokens: what a head has of a token stays side by side.
TEST(Permuted, HeadsAreMovedWhole) {
  Nothing sink;
  Eager e(sink, {});
  const Tensor x = e.empty({2, 128, 12, 64}, DType::bf16);
  EXPECT_EQ(permuted_into_rows(transpose(e, x, 1, 2)), Permuted{});
}

// Rows and columns of an image are one run, since both layouts have them one behind the other.
TEST(Permuted, ARunGoesOnOverDimensions) {
  Nothing sink;
  Eager e(sink, {});
  const Tensor last = e.empty_strided({1, 32, 128, 128}, {524288, 1, 4096, 32}, DType::f32);
  EXPECT_EQ(permuted_into_rows(last), (Permuted{int64_t{524288} * 4, 128 * 128}));
  clone_contiguous(e, last);
  EXPECT_EQ(sink.last.permuted.run, 128 * 128);
  EXPECT_EQ(sink.last.kind, OpKind::clone);
}

TEST(Permuted, WhatHasOneElementIsNotTurned) {
  Nothing sink;
  Eager e(sink, {});
  EXPECT_EQ(permuted_into_rows(e.empty({1, 1, 1}, DType::f32)), Permuted{});
  EXPECT_EQ(permuted_into_rows(e.empty({}, DType::f32)), Permuted{});
  const Tensor wide = e.empty_strided({2, 3}, {int64_t{1} << 62, int64_t{1} << 61}, DType::f32);
  EXPECT_EQ(permuted_into_rows(wide), Permuted{});  // strides that no address has
}

}  // namespace
}  // namespace headroom::op
