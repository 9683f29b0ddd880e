#include "operator/scratch.h"

#include <gtest/gtest.h>

#include <vector>

#include "operator/functional.h"

namespace headroom::op {
namespace {

// Counts bytes alive, and their peak.
class CountingSink : public Sink {
 public:
  uint32_t on_allocate(int64_t bytes) override {
    sizes.push_back(bytes);
    live += bytes;
    peak = std::max(peak, live);
    return static_cast<uint32_t>(sizes.size() - 1);
  }
  void on_free(uint32_t buffer) override { live -= sizes[buffer]; }
  void on_kernel(const KernelWork&) override {}
  void on_saved(uint32_t) override {}
  void on_module(uint32_t) override {}

  std::vector<int64_t> sizes;
  int64_t live = 0;
  int64_t peak = 0;
};

constexpr Environment kAmpere{.torch = {2, 4},
                              .compute_capability = 80,
                              .multiprocessors = 108,
                              .kernel_scratch = true,
                              .blas = {}};
constexpr Environment kHopper{.torch = {2, 8},
                              .compute_capability = 90,
                              .multiprocessors = 132,
                              .kernel_scratch = true,
                              .blas = {}};

TEST(Scratch, EmbeddingBackwardSumsPartsInFloat32) {
  // 32,768 tokens of a vocabulary of 32,000 and a width of 4,096: 3,276 + 32,000 parts.
  const auto scratch = embedding_backward_scratch(kAmpere, 32768, 32000, 4096, DType::bf16);
  EXPECT_TRUE(scratch.sorts);
  EXPECT_EQ(scratch.index_bytes, 262144);
  EXPECT_EQ(scratch.segment_bytes, 256000);
  EXPECT_EQ(scratch.partial_rows_bytes, int64_t{35276} * 4096 * 4);
}

TEST(Scratch, FewIndicesNeedNoSort) {
  EXPECT_FALSE(embedding_backward_scratch(kAmpere, 3072, 100, 64, DType::f32).sorts);
  EXPECT_TRUE(embedding_backward_scratch(kAmpere, 3073, 100, 64, DType::f32).sorts);
  EXPECT_FALSE(embedding_backward_scratch(kHopper, 4096, 100, 64, DType::f32).sorts);
  EXPECT_TRUE(embedding_backward_scratch(kHopper, 4097, 100, 64, DType::f32).sorts);
}

TEST(Scratch, FlashBackwardPadsRowsAndHeads) {
  const AttentionSizes grouped{2, 32, 8, 1000, 1000, 80};
  const auto scratch = flash_backward_scratch(kAmpere, grouped, DType::bf16);
  EXPECT_EQ(scratch.row_sums_bytes, int64_t{2} * 32 * 1024 * 4);
  EXPECT_EQ(scratch.query_gradient_bytes, int64_t{2} * 1024 * 32 * 96 * 4);
  EXPECT_EQ(scratch.expanded_bytes, int64_t{2} * 1000 * 32 * 80 * 2);
  const AttentionSizes equal{2, 32, 32, 1024, 1024, 128};
  EXPECT_EQ(flash_backward_scratch(kAmpere, equal, DType::bf16).expanded_bytes, 0);
  const AttentionSizes wide{1, 1, 1, 128, 128, 160};
  EXPECT_EQ(flash_backward_scratch(kAmpere, wide, DType::bf16).query_gradient_bytes, 128 * 160 * 4);
  EXPECT_EQ(flash_backward_scratch(kHopper, wide, DType::bf16).query_gradient_bytes, 128 * 192 * 4);
}

TEST(Scratch, EfficientBackwardNeedsSumsForHalfTypesOnly) {
  const AttentionSizes sizes{2, 4, 4, 128, 128, 64};
  const auto half = efficient_backward_scratch(kAmpere, sizes, DType::bf16);
  EXPECT_EQ(half.workspace_bytes, int64_t{8} * 2 * (64 * 64 + 4) * 4);
  EXPECT_EQ(half.products_bytes, 0);
  const auto full = efficient_backward_scratch(kAmpere, sizes, DType::f32);
  EXPECT_EQ(full.workspace_bytes, 0);
  EXPECT_EQ(full.products_bytes, int64_t{8} * 128 * 64 * 4);
}

TEST(Scratch, NormBackwardTakesTwoPassesForManyRowsOnly) {
  EXPECT_EQ(norm_backward_partial_bytes(kAmpere, 1 << 20, 1024, DType::bf16), 0);  // torch 2.4
  EXPECT_EQ(norm_backward_partial_bytes(kHopper, 65536, 1024, DType::bf16), 0);
  EXPECT_EQ(norm_backward_partial_bytes(kHopper, 131072, 8192, DType::bf16), 0);  // wide
  // 32 columns of blocks leave 1,024 rows of them.
  EXPECT_EQ(norm_backward_partial_bytes(kHopper, 131072, 1024, DType::bf16), 1024 * 1024 * 2);
}

// Of an A100: 1,728 blocks of 128 threads, each adding four columns a thread.
TEST(Scratch, ColumnsOfALongMatrixMeetInAStagingBuffer) {
  CountingSink sink;
  Eager eager(sink, kAmpere);
  InlineVector<uint8_t, kDimsMax> rows;
  rows.push_back(1);
  rows.push_back(0);
  const auto columns = [&](int64_t width) {
    return reduction_scratch(kAmpere, eager.empty({2048, width}, DType::f32), rows, 4);
  };
  EXPECT_EQ(columns(1024).staging_bytes, 16 << 20);  // 32 shares, limited by the work
  EXPECT_EQ(columns(1024).semaphore_bytes, 32);
  EXPECT_EQ(columns(8192).staging_bytes, 108 << 20);  // 27 shares, limited by the device
  EXPECT_EQ(columns(32768).staging_bytes, 112 << 20);
  EXPECT_EQ(reduction_scratch(kAmpere, eager.empty({512, 1024}, DType::f32), rows, 4).staging_bytes,
            0);  // few rows
}

TEST(Scratch, RowsAreAddedInOneBlock) {
  CountingSink sink;
  Eager eager(sink, kAmpere);
  InlineVector<uint8_t, kDimsMax> last;
  last.push_back(0);
  last.push_back(1);
  const Tensor input = eager.empty({2048, 4096}, DType::f32);
  EXPECT_EQ(reduction_scratch(kAmpere, input, last, 4).staging_bytes, 0);
}

TEST(Scratch, IsHeldInsideTheCallAndCanBeSwitchedOff) {
  for (const bool on : {true, false}) {
    CountingSink sink;
    Environment environment = kAmpere;
    environment.kernel_scratch = on;
    Eager eager(sink, environment);
    const Tensor weight = eager.empty({1000, 64}, DType::f32);
    weight->requires_grad = true;
    const Tensor indices = eager.empty({4096}, DType::i64);
    const Tensor out = embedding(eager, weight, indices);
    const int64_t before = sink.live;
    Grads grads{eager.empty(out.sizes(), out.dtype())};
    Grads results(1);
    out->grad_fn->apply(eager, *out->grad_fn, grads, results);
    const int64_t gradient = int64_t{1000} * 64 * 4;
    EXPECT_EQ(sink.live, before + grads[0].bytes() + gradient);
    const int64_t above = sink.peak - sink.live;
    if (on) {
      EXPECT_GE(above, int64_t{1409} * 64 * 4);
    } else {
      EXPECT_EQ(above, 0);
    }
  }
}

TEST(Scratch, EachThreadMakesItsWorkspaceOnce) {
  CountingSink sink;
  Environment environment = kAmpere;
  environment.blas = {.main_bytes = 1000, .lt_bytes = 100};
  Eager eager(sink, environment);
  eager.use_blas();
  eager.use_blas();
  EXPECT_EQ(sink.live, 1000);
  eager.use_blas(true);  // of this version, for the length of the call
  EXPECT_EQ(sink.live, 1000);
  EXPECT_EQ(sink.peak, 1100);
  eager.set_thread(ThreadKind::autograd);
  eager.use_blas();
  EXPECT_EQ(sink.live, 2000);
}

// SoftMax.cu: softmax's gradient is multiplied into a block of its own, log_softmax's is not.
TEST(Scratch, SoftmaxBackwardHoldsAProductOnADevice) {
  const auto above = [](const Environment& environment, bool is_log) {
    CountingSink sink;
    Eager eager(sink, environment);
    const Tensor scores = eager.empty({4, 512, 512}, DType::f32);
    scores->requires_grad = true;
    const Tensor out = is_log ? log_softmax(eager, scores, -1) : softmax(eager, scores, -1);
    Grads grads{eager.empty(out.sizes(), out.dtype())};
    Grads results(1);
    out->grad_fn->apply(eager, *out->grad_fn, grads, results);
    return sink.peak - sink.live;
  };
  constexpr Environment kCpu{.compute_capability = 0, .kernel_scratch = true, .blas = {}};
  EXPECT_EQ(above(kHopper, false), int64_t{4} * 512 * 512 * 4);
  EXPECT_EQ(above(kHopper, true), 0);
  EXPECT_EQ(above(kCpu, false), 0);
}

}  // namespace
}  // namespace headroom::op
