// One operator of a step, as the step model counted it, made a Call that the laws of timing take.
//
// The step model keeps work and bytes, not shapes: a product's sizes follow from those, attention's
// from the model's heads. For `ops` and `fit`, which time the same operators. Pure; thread-safe;
// some ten nanoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "operator/dtype.h"
#include "operator/kind.h"
#include "step/trace.h"
#include "text/json.h"
#include "timing/call.h"
#include "timing/timing_model.h"

namespace headroom::timing {

// What the step model does not keep with its operators.
struct StepShape {
  int64_t tokens = 1;                // of all sequences together
  int64_t sequence = 1;              // of one; 0: not known, and `tokens` are sequences
  int64_t heads = 0;                 // of attention; 0: not known
  int64_t kv_heads = 0;              // 0: as many
  op::DType type = op::DType::bf16;  // that products are computed in, where they do not say
};

struct OperatorWork {
  op::OpGroup group{};
  double flops = 0;
  double bytes_read = 0;
  double bytes_written = 0;
  uint8_t element_bytes = 0;  // of what a product computes in; 0: as the step's type
  int64_t rows = 0;           // and keys: as op::KernelWork has them
  int64_t keys = 0;
  op::Permuted permuted{};
  bool has_bias = false;
  std::optional<op::OpKind> kind{};  // nothing: of a program of others, and its group is all
};

// As the step model counted it.
[[nodiscard]] OperatorWork work_of(const step::OperatorCall& call);
// The operators of the last step: a trace has the first one, which makes the optimizer's states,
// and a steady one.
[[nodiscard]] std::span<const step::OperatorCall> last_step(const step::StepTrace& trace);

// The heads of attention, where a model's configuration says them.
Result<void> read_heads(const text::JsonView& config, StepShape& shape);

// bf16, fp16 or fp32, where that is what the type is computed in.
[[nodiscard]] device::Rate rate_of(op::DType type);

// A product's sizes from its work: k = flops / (2 m n), and m + n is what else was read. Where it
// does not say its rows, m is the one of the two that is the step's tokens, or nearer to them.
[[nodiscard]] GemmShape product_shape(const OperatorWork& work, const StepShape& shape);
[[nodiscard]] Call product_call(const OperatorWork& work, const StepShape& shape,
                                device::Rate rate);
// A copy that turns that over.
[[nodiscard]] Call permuted_copy_call(const op::Permuted& permuted, double element_bytes);
// Row by row: the rows that it says, else the step's tokens.
[[nodiscard]] Call rows_call_of(const OperatorWork& work, const StepShape& shape);
[[nodiscard]] Call rows_call_of(op::OpGroup group, double read, double written,
                                const StepShape& shape);
// Any operator but collectives. REQUIRES: it moves at least a byte.
[[nodiscard]] Call call_of(const OperatorWork& work, const StepShape& shape);

// What launches take together. Errors of one law go one way, so its ends add up.
struct TimeSum {
  Provenance floor = Provenance::interpolated;  // a sum is no better known than that
  double low = 0, middle = 0, high = 0;
  Provenance provenance = floor;
  std::string basis = {};  // of the longest of those with that provenance
  double longest = 0;

  void add(const PredictedTime& time, int64_t times = 1);
};

}  // namespace headroom::timing
