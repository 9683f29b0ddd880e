// PyTorch's choices on devices that are easy to look up, and what each kernel refuses.
#include "operator/attention_backend.h"

#include <gtest/gtest.h>

#include "operator/eager.h"

namespace headroom::op {
namespace {

Environment on(int compute_capability, Version torch = {2, 13}) {
  Environment environment;
  environment.compute_capability = compute_capability;
  environment.torch = torch;
  return environment;
}

AttentionCall call(DType dtype, int64_t head = 128) {
  AttentionCall one;
  one.dtype = dtype;
  one.query_length = one.key_length = 1024;
  one.head = one.value_head = head;
  one.trains = true;
  return one;
}

TEST(AttentionBackend, ChoosesByDeviceAndType) {
  EXPECT_EQ(chosen_backend(on(80), call(DType::bf16)), AttentionBackend::flash);
  EXPECT_EQ(chosen_backend(on(80), call(DType::f32)), AttentionBackend::efficient);
  EXPECT_EQ(chosen_backend(on(75), call(DType::f16)), AttentionBackend::efficient);
  EXPECT_EQ(chosen_backend(on(75), call(DType::bf16)), AttentionBackend::math);
  EXPECT_EQ(chosen_backend(on(80), call(DType::f64)), AttentionBackend::math);
  EXPECT_EQ(chosen_backend(on(0), call(DType::f32)), AttentionBackend::math);
  EXPECT_EQ(chosen_backend(on(100, {2, 6}), call(DType::bf16)), AttentionBackend::efficient);
  EXPECT_EQ(chosen_backend(on(100), call(DType::bf16)), AttentionBackend::flash);
}

TEST(AttentionBackend, ChoosesByMaskAndHeads) {
  AttentionCall masked = call(DType::bf16);
  masked.has_mask = true;
  EXPECT_EQ(chosen_backend(on(80), masked), AttentionBackend::efficient);
  masked.grouped = true;
  EXPECT_EQ(chosen_backend(on(80), masked), AttentionBackend::math);
  AttentionCall latent = call(DType::bf16, 192);
  latent.value_head = 128;
  EXPECT_EQ(chosen_backend(on(80), latent), AttentionBackend::efficient);
  EXPECT_EQ(chosen_backend(on(80), call(DType::bf16, 12)), AttentionBackend::flash);
  EXPECT_EQ(chosen_backend(on(80), call(DType::f32, 6)), AttentionBackend::math);
  EXPECT_EQ(chosen_backend(on(80), call(DType::bf16, 256)), AttentionBackend::flash);
  EXPECT_EQ(chosen_backend(on(80), call(DType::bf16, 320)), AttentionBackend::efficient);
  EXPECT_EQ(chosen_backend(on(89), call(DType::bf16, 200)), AttentionBackend::efficient);
  EXPECT_EQ(chosen_backend(on(89), call(DType::bf16, 256)), AttentionBackend::flash);
}

TEST(AttentionBackend, SaysWhyAKernelCannot) {
  EXPECT_EQ(refusal(AttentionBackend::math, on(75), call(DType::f64)), nullptr);
  EXPECT_EQ(refusal(AttentionBackend::cudnn, on(90), call(DType::bf16)), nullptr);
  EXPECT_NE(refusal(AttentionBackend::cudnn, on(90, {2, 4}), call(DType::bf16)), nullptr);
  EXPECT_NE(refusal(AttentionBackend::cudnn, on(90), call(DType::bf16, 192)), nullptr);
  EXPECT_NE(refusal(AttentionBackend::flash, on(80), call(DType::f32)), nullptr);
  EXPECT_NE(refusal(AttentionBackend::efficient, on(80), call(DType::bf16, 12)), nullptr);
}

}  // namespace
}  // namespace headroom::op
