#include "step/recorded_scratch.h"

#include <algorithm>
#include <string_view>

#include "operator/scratch.h"

namespace headroom::step {

namespace {

using op::Environment;
using op::Tensor;

// query, key and value, [batch, heads, sequence, head] each.
RecordedScratch of_attention(const Environment& environment, std::string_view name,
                             std::span<const Tensor> inputs) {
  constexpr size_t kTensors = 3;
  if (inputs.size() < kTensors) return {};
  for (size_t i = 0; i < kTensors; ++i) {
    if (!inputs[i] || inputs[i].rank() != 4) return {};
  }
  const Tensor& query = inputs[0];
  const Tensor& key = inputs[1];
  const op::AttentionSizes sizes{query.size(0), query.size(1), key.size(1),
                                 query.size(2), key.size(2),   query.size(3)};
  if (name.starts_with("aten._scaled_dot_product_flash")) {
    const auto scratch = op::flash_backward_scratch(environment, sizes, query.dtype());
    return {{},
            {},
            {scratch.row_sums_bytes, scratch.query_gradient_bytes, scratch.expanded_bytes,
             scratch.expanded_bytes}};
  }
  if (name.starts_with("aten._scaled_dot_product_efficient")) {
    const auto scratch = op::efficient_backward_scratch(environment, sizes, query.dtype());
    return {{}, {}, {scratch.products_bytes, scratch.delta_bytes, scratch.workspace_bytes}};
  }
  return {};
}

// weight [rows, width], indices.
RecordedScratch of_embedding(const Environment& environment, std::span<const Tensor> inputs) {
  if (inputs.size() < 2 || !inputs[0] || !inputs[1] || inputs[0].rank() != 2) return {};
  const auto scratch = op::embedding_backward_scratch(
      environment, inputs[1].elements(), inputs[0].size(0), inputs[0].size(1), inputs[0].dtype());
  if (!scratch.sorts) return {};
  return {{scratch.index_bytes, scratch.index_bytes},
          {scratch.index_bytes, scratch.sort_bytes},
          {scratch.index_bytes, scratch.segment_bytes, scratch.segment_bytes, scratch.partial_bytes,
           scratch.partial_rows_bytes}};
}

// input [..., width], then its parameters.
RecordedScratch of_norm(const Environment& environment, std::span<const Tensor> inputs) {
  RecordedScratch scratch;
  if (inputs.empty() || !inputs[0] || inputs[0].rank() == 0) return scratch;
  const int64_t width = inputs[0].size(-1);
  const int64_t rows = width > 0 ? inputs[0].elements() / width : 0;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (!inputs[i] || !inputs[i]->requires_grad) continue;
    scratch.at_the_end.push_back(
        op::norm_backward_partial_bytes(environment, rows, width, inputs[0].dtype()));
  }
  return scratch;
}

RecordedScratch of_softmax(const Environment& environment, std::span<const Tensor> outputs) {
  if (outputs.empty() || !outputs[0]) return {};
  return {{}, {}, {op::softmax_product_bytes(environment, outputs[0].bytes())}};
}

// bias [columns], and the product [rows, columns] whose gradient is summed over its rows.
RecordedScratch of_bias(const Environment& environment, std::span<const Tensor> inputs,
                        std::span<const Tensor> outputs) {
  if (inputs.empty() || outputs.empty() || !inputs[0] || !outputs[0]) return {};
  const bool is_summed =
      inputs[0]->requires_grad && inputs[0].rank() == 1 && outputs[0].rank() == 2;
  if (!is_summed) return {};
  InlineVector<uint8_t, op::kDimsMax> rows;
  rows.push_back(1);
  rows.push_back(0);
  const int64_t accumulator = std::max<int64_t>(4, op::element_size(outputs[0].dtype()));
  const auto scratch = op::reduction_scratch(environment, outputs[0], rows, accumulator);
  return {{}, {}, {scratch.staging_bytes, scratch.semaphore_bytes}};
}

}  // namespace

RecordedScratch backward_scratch(const Environment& environment, const model::Operation& operation,
                                 std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  switch (operation.kind) {
    case op::OpKind::sdpa:
      return of_attention(environment, operation.recording->name, inputs);
    case op::OpKind::embedding:
      return of_embedding(environment, inputs);
    case op::OpKind::layer_norm:
    case op::OpKind::rms_norm:
      return of_norm(environment, inputs);
    case op::OpKind::softmax:
      return of_softmax(environment, outputs);
    case op::OpKind::addmm:
      return of_bias(environment, inputs, outputs);
    default:
      return {};
  }
}

}  // namespace headroom::step
