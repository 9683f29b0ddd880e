#include "model/megatron_fp8.h"

#include <string_view>
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

Error no_multiple(const MegatronStage& stage, const std::string& tensor, int64_t size,
                  const std::string& dimension, int64_t multiple, std::string hint) {
  return Error{ErrorCode::bad_input,
               tensor + " has " + std::to_string(size) + " " + dimension +
                   " on a rank: products in FP8 (" +
                   std::string(op::name_of(stage.model.fp8.recipe)) + ") take multiples of " +
                   std::to_string(multiple),
               "", std::move(hint)};
}

// [outputs, inputs]
Result<void> check_weight(const MegatronStage& stage, const std::string& name, const Dims& sizes,
                          const op::Fp8Multiples& multiples) {
  const std::string hint =
      "sizes of the model that are such multiples, fewer tensor parallel ranks to divide them "
      "among, or no --fp8-format";
  if (sizes[0] % multiples.outputs != 0) {
    return no_multiple(stage, name, sizes[0], "rows (outputs)", multiples.outputs, hint);
  }
  if (sizes[1] % multiples.inputs != 0) {
    return no_multiple(stage, name, sizes[1], "columns (inputs)", multiples.inputs, hint);
  }
  return {};
}

// Of a micro-batch: the rank's own, and what ranks with parts of its sequences gather; but latent
// attention's narrow products are of own rows alone. Experts' tokens are filled up.
Result<void> check_tokens(const MegatronStage& stage, int64_t sequence,
                          const op::Fp8Multiples& multiples) {
  const MegatronRank& r = stage.rank;
  const int64_t gathered = sequence / r.context * stage.micro_batch;
  const int64_t own = gathered / (r.sequence_parallel ? r.tensor : 1);
  const int64_t summed = stage.model.latent.key_rank > 0 ? own : gathered;
  const std::string hint =
      "a --micro-batch-size or --seq-length with which they are, or no --fp8-format";
  if (own % multiples.rows != 0) {
    return no_multiple(stage, "the input of a layer", own, "rows (tokens of a micro-batch)",
                       multiples.rows, hint);
  }
  if (summed % multiples.gathered_rows != 0) {
    return no_multiple(stage, "the input that a weight's gradient is made of", summed,
                       "rows (tokens of a micro-batch)", multiples.gathered_rows, hint);
  }
  return {};
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

Result<void> check_fp8_sizes(const MegatronStage& stage, const Graph& graph) {
  const MegatronFp8& fp8 = stage.model.fp8;
  if (!fp8.is_on()) return {};
  const op::Fp8Multiples multiples = op::fp8_multiples(fp8.recipe, fp8.keeps_twice);
  constexpr std::string_view kKept = ".fp8";
  for (const Parameter& buffer : graph.buffers) {
    if (!buffer.name.ends_with(kKept)) continue;
    const std::string name = buffer.name.substr(0, buffer.name.size() - kKept.size());
    HEADROOM_TRY(check_weight(stage, name, buffer.shape, multiples));
  }
  HEADROOM_TRY(check_tokens(stage, stage.sequence, multiples));
  return check_tokens(stage, stage.decoder_sequence, multiples);
}

}  // namespace headroom::model
