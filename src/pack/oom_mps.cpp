#include "pack/oom_mps.h"

#include <algorithm>

namespace headroom::pack {
namespace {

constexpr Bytes kMost{int64_t{1} << 56};  // no machine has it; sums of such figures still fit

// Of the limit; of what is held where the message names none.
std::vector<OomHolder> holders_of(const formats::OomMessage& message) {
  const Bytes whole = message.allowed.value_or(*message.allocated + *message.beside);
  std::vector<OomHolder> holders;
  holders.push_back({"tensors", "what PyTorch's heaps hold, each with a tensor in it",
                     *message.allocated, pct_of(*message.allocated, whole)});
  holders.push_back({"outside", "this process beside it: Metal's graphs, other libraries",
                     *message.beside, pct_of(*message.beside, whole)});
  std::stable_sort(holders.begin(), holders.end(),
                   [](const OomHolder& a, const OomHolder& b) { return a.bytes > b.bytes; });
  return holders;
}

std::string limit_words(const formats::OomMessage& message) {
  return message.allowed ? " of " + format_bytes(*message.allowed) + " allowed" : std::string();
}

void blame_request(OomCase& one) {
  one.culprit = OomCulprit::request;
  one.culprit_bytes = one.message.tried;
  one.verdict = "the request itself: " + format_bytes(*one.message.tried) + " in one piece, " +
                (one.message.allowed ? "where " + format_bytes(*one.message.allowed) + " is allowed"
                                     : "more than Metal gives a buffer");
  one.advice = {
      "make that one tensor smaller: a smaller batch, sequence or image, attention in slices"};
}

void blame_outside(OomCase& one) {
  one.culprit = OomCulprit::outside;
  one.culprit_bytes = one.message.beside;
  one.verdict =
      "memory beside PyTorch's allocator in this process: " + format_bytes(*one.message.beside) +
      limit_words(one.message);
  one.advice = {
      "start the process anew: Metal keeps compiled graphs and their buffers for each new shape, "
      "so "
      "fewer shapes (padded batches, one image size) keep it small",
      "other libraries of the process that use the GPU (Core ML, MLX) hold memory of their own"};
}

// The allocator says the same where Metal refuses it below the limit.
void blame_device(OomCase& one) {
  one.culprit = OomCulprit::was_free;
  one.culprit_bytes = *one.message.allowed - *one.message.allocated - *one.message.beside;
  one.verdict = "none of these figures: " + format_bytes(*one.culprit_bytes) +
                limit_words(one.message) + " was left, and the device refused " +
                format_bytes(*one.message.tried);
  one.advice = {
      "in a virtual machine, as CI services lend them, the GPU gives no memory at all: use the CPU "
      "there (torch.backends.mps.is_available() says yes all the same)",
      "on a machine of your own other programs hold it, or it is in pieces that are too small: end "
      "them, or start the process anew"};
}

void blame_model(OomCase& one) {
  one.culprit = OomCulprit::model;
  one.culprit_bytes = one.message.allocated;
  one.verdict = "the model itself: PyTorch's heaps hold " + format_bytes(*one.message.allocated) +
                limit_words(one.message);
  one.advice = {
      "a smaller batch or sequence, gradient checkpointing, or weights in float16 or bfloat16",
      "headroom fit MODEL says what each of these saves; it counts for NVIDIA's GPUs, whose "
      "tensors "
      "are as large"};
}

}  // namespace

void judge_mps(OomCase& one) {
  const formats::OomMessage& message = one.message;
  if (!message.allocated) {
    blame_request(one);
    return;
  }
  for (const auto& figure : {message.allocated, message.beside, message.allowed, message.tried}) {
    if (!figure || *figure <= kMost) continue;
    one.verdict = "an out-of-memory message with figures that no machine has";
    return;
  }
  one.holders = holders_of(message);
  if (message.allowed) {
    const Bytes missing = *message.allocated + *message.beside + *message.tried - *message.allowed;
    const Bytes slack = rounding_of(*message.allocated) + rounding_of(*message.beside) +
                        rounding_of(*message.tried) + rounding_of(*message.allowed);
    one.short_by = BytesRange{missing - slack, missing, missing + slack};
  }
  const Bytes missing = one.short_by ? one.short_by->expected : *message.tried;
  if (message.allowed && *message.tried > *message.allowed) {
    blame_request(one);
  } else if (one.short_by && one.short_by->high.count <= 0) {
    blame_device(one);
    return;
  } else if (*message.beside >= std::max(missing, *message.allocated)) {
    blame_outside(one);
  } else {
    blame_model(one);
  }
  if (!message.allowed) return;
  one.advice.emplace_back(
      "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the limit, not the memory: the machine swaps, "
      "and may come to a standstill");
}

}  // namespace headroom::pack
