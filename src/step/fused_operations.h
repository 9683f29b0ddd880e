// Fused kernels in a graph: which inputs and attributes their operations have, and how one is run.
//
// An attribute list is written by a transformation and read here alone, so both ends stand
// together.
#pragma once

#include <span>
#include <vector>

#include "model/graph.h"
#include "operator/fast_kernels.h"
#include "operator/fused_kernels.h"

namespace headroom::step {

// Inputs: input, weight.
[[nodiscard]] model::Attributes attributes_of(const op::LigerNorm& norm);
// Inputs: hidden, weight, bias (or none), target. Outputs: the loss and, where asked for, what
// autocast's cache holds of the weight. Autocast is set later, in `dtype`.
[[nodiscard]] model::Attributes attributes_of(const op::LigerLinearLoss& loss);
// Inputs: x and, for each base, weight, A, B, bias (or none). Autocast is set later, in `dtype`.
[[nodiscard]] model::Attributes fast_lora_attributes(std::span<const op::QuantizedLinear> bases,
                                                     double dropout);

// Runs a fused operation; no outputs for a kind that is none.
[[nodiscard]] std::vector<op::Tensor> run_fused(op::Eager& e, const model::Operation& operation,
                                                std::span<const op::Tensor> in);

}  // namespace headroom::step
