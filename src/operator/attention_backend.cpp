#include "operator/attention_backend.h"

#include "operator/eager.h"

namespace headroom::op {

namespace {

// Elements that a head has to be a multiple of for CUTLASS' loads (minimum_gemm_alignment).
int64_t head_alignment(const Environment& environment, DType dtype) {
  const bool tensor_cores = environment.compute_capability >= 80 ||
                            (environment.compute_capability >= 70 && is_half(dtype));
  if (tensor_cores) return is_half(dtype) ? 8 : 4;
  return 1;
}

const char* flash_refusal(const Environment& environment, const AttentionCall& call) {
  constexpr Version kBlackwell{2, 7};
  const int device = environment.compute_capability;
  if (call.has_mask) return "flash attention takes no mask";
  if (!is_half(call.dtype)) return "flash attention takes float16 and bfloat16 alone";
  if (device < 80) return "flash attention needs compute capability 8.0";
  if (device >= 100 && environment.torch < kBlackwell) {
    return "flash attention runs on this device since torch 2.7";
  }
  if (call.head != call.value_head) return "flash attention takes heads of one size";
  if (call.head > 256) return "flash attention takes heads up to 256";
  // Less shared memory than a 8.0 has.
  const bool is_small = (device >= 86 && device <= 89) || device >= 120;
  const bool fits_small = call.head <= 192 || (call.head > 224 && call.dropout == 0);
  if (is_small && call.trains && !fits_small) {
    return "flash attention does not train heads that large on this device";
  }
  if (call.causal && call.query_length != call.key_length) {
    return "flash attention is causal over sequences of one length alone";
  }
  return nullptr;
}

const char* efficient_refusal(const Environment& environment, const AttentionCall& call) {
  if (call.grouped) return "the memory-efficient kernel has no grouped heads";
  if (call.dtype == DType::bf16 && environment.compute_capability < 80) {
    return "the memory-efficient kernel takes bfloat16 since compute capability 8.0";
  }
  if (!is_half(call.dtype) && call.dtype != DType::f32) {
    return "the memory-efficient kernel takes float32, float16 and bfloat16 alone";
  }
  const int64_t alignment = head_alignment(environment, call.dtype);
  if (call.head % alignment != 0 || call.value_head % alignment != 0) {
    return "the memory-efficient kernel wants heads of a multiple of 8 elements, 4 in float32";
  }
  return nullptr;
}

const char* cudnn_refusal(const Environment& environment, const AttentionCall& call) {
  constexpr int64_t kHeadMax = 128;
  constexpr Version kFirst{2, 5};
  if (environment.torch < kFirst) return "cuDNN attention is there since torch 2.5";
  if (environment.compute_capability < 80) {
    return "cuDNN attention needs compute capability 8.0";
  }
  if (!is_half(call.dtype)) return "cuDNN attention takes float16 and bfloat16 alone";
  if (call.head % 8 != 0 || call.value_head % 8 != 0) {
    return "cuDNN attention wants heads of a multiple of 8 elements";
  }
  if (call.head > kHeadMax || call.value_head > kHeadMax) {
    return "cuDNN attention takes heads up to 128";
  }
  if (call.key_length == 1) return "cuDNN attention takes more than one key";
  return nullptr;
}

}  // namespace

std::string_view name_of(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::math:
      return "math";
    case AttentionBackend::efficient:
      return "efficient";
    case AttentionBackend::flash:
      return "flash";
    case AttentionBackend::cudnn:
      return "cudnn";
  }
  return "math";
}

const char* refusal(AttentionBackend backend, const Environment& environment,
                    const AttentionCall& call) {
  if (backend == AttentionBackend::math) return nullptr;
  if (environment.compute_capability == 0) return "a CPU has none of the CUDA kernels";
  // check_batch_size_and_num_heads_dense in ATen/native/transformers/sdp_utils_cpp.h
  // (PyTorch 2.13).
  if (call.broadcasts) return "no fused kernel takes heads that are to be broadcast";
  switch (backend) {
    case AttentionBackend::flash:
      return flash_refusal(environment, call);
    case AttentionBackend::efficient:
      return efficient_refusal(environment, call);
    case AttentionBackend::cudnn:
      return cudnn_refusal(environment, call);
    case AttentionBackend::math:
      break;
  }
  return nullptr;
}

AttentionBackend chosen_backend(const Environment& environment, const AttentionCall& call) {
  for (const auto backend : {AttentionBackend::flash, AttentionBackend::efficient}) {
    if (refusal(backend, environment, call) == nullptr) return backend;
  }
  return AttentionBackend::math;
}

}  // namespace headroom::op
