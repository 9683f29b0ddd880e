#include "model/megatron_fp8.h"

#include <utility>

namespace headroom::model {

namespace {

// Largest values and scales: of a product forward its input, weight and output, backward the
// gradients of the output and of the input, whether they are quantized or not.
void keep_delayed_scales(GraphBuilder& g, const std::string& module, int64_t history,
                         int64_t products) {
  constexpr int64_t kForward = 3;
  constexpr int64_t kBackward = 2;
  for (const auto& [name, tensors] : {std::pair("fwd", kForward), std::pair("bwd", kBackward)}) {
    const std::string scaling = module + ".scaling_" + name;
    g.buffer(scaling + ".scale", {tensors * products}, DType::f32, false);
    g.buffer(scaling + ".amax_history", {history, tensors * products}, DType::f32, false);
  }
}

}  // namespace

void keep_in_fp8(GraphBuilder& g, const MegatronModel& m, const std::string& module,
                 const Dims& weight, int64_t matrices) {
  if (!m.fp8.is_on()) return;
  const op::Fp8Scales scales = op::fp8_scales(m.fp8.recipe, weight[0], weight[1], true);
  for (int64_t i = 0; i < matrices; ++i) {
    const std::string name = module + ".weight" + (matrices > 1 ? std::to_string(i) : "") + ".fp8";
    g.buffer(name, weight, DType::f8, false);
    g.buffer(name + "_scale", {scales.by_rows}, DType::u8, false);
    if (!m.fp8.keeps_twice) continue;
    g.buffer(name + "_columns", {weight[1], weight[0]}, DType::f8, false);
    if (scales.by_columns == 0) continue;
    g.buffer(name + "_columns_scale", {scales.by_columns}, DType::u8, false);
  }
  if (m.fp8.recipe == op::Fp8Recipe::delayed) {
    keep_delayed_scales(g, module, m.fp8.history, matrices);
  }
}

}  // namespace headroom::model
