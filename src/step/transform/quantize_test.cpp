#include "step/transform/quantize.h"

#include <gtest/gtest.h>

#include <numeric>

#include "model/builder.h"
#include "step/train_step.h"
#include "step/transform/lora.h"

namespace headroom::step {
namespace {

using model::DType;
using model::Graph;
using model::GraphBuilder;
using model::ParameterRole;
using model::Var;
using op::QuantizedFormat;

constexpr int64_t kIn = 128;
constexpr int64_t kOut = 320;

Graph small_model() {
  GraphBuilder g;
  {
    const Var table = g.parameter("embed.weight", {64, kIn}, ParameterRole::embedding);
    const Var up = g.parameter("layers.0.up.weight", {kOut, kIn}, ParameterRole::linear);
    const Var head = g.parameter("head.weight", {64, kOut}, ParameterRole::lm_head);
    const Var ids = g.input("input_ids", {2, 4}, DType::i64);
    const Var x = g.linear(g.embedding(table, ids), up);
    const Var logits = g.view(g.linear(x, head), {-1, 64});
    const Var loss = g.cross_entropy(logits, g.view(ids, {-1}));
    g.set_outputs(loss, logits, {});
  }
  return g.finish();
}

Graph quantized(QuantizedFormat format, bool float32_rest = false) {
  QuantizeOptions options;
  options.format = format;
  options.float32_rest = float32_rest;
  return *apply_quantization(small_model(), options);
}

int64_t bytes_of(const std::vector<model::Parameter>& parameters) {
  int64_t bytes = 0;
  for (const model::Parameter& parameter : parameters) {
    const auto& shape = parameter.shape;
    bytes += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()) *
             op::element_size(parameter.dtype.value_or(DType::bf16));
  }
  return bytes;
}

TEST(Quantize, NestedNf4TakesHalfAByteAWeightAndItsTables) {
  const Graph graph = quantized(QuantizedFormat::nf4_double);
  const int64_t unquantized = 2 * (64 * kIn + 64 * kOut);
  EXPECT_EQ(bytes_of(graph.parameters), unquantized + kIn * kOut / 2);
  // 640 maxima of one byte, three maxima of those, an offset, 16 codes; 256 codes once.
  EXPECT_EQ(bytes_of(graph.buffers), 640 + 3 * 4 + 4 + 16 * 4 + 256 * 4);
}

TEST(Quantize, ParametersStayAsManyHoweverTheyArePacked) {
  const int64_t count = model::parameter_count(small_model(), false);
  for (const QuantizedFormat format : {QuantizedFormat::nf4, QuantizedFormat::nf4_double,
                                       QuantizedFormat::int8, QuantizedFormat::gptq}) {
    EXPECT_EQ(model::parameter_count(quantized(format), false), count);
  }
}

TEST(Quantize, PlainNf4KeepsItsMaximaInFloat32) {
  EXPECT_EQ(bytes_of(quantized(QuantizedFormat::nf4).buffers), 640 * 4 + 16 * 4);
}

TEST(Quantize, GptqPacksInputsAndItsTablesByGroup) {
  const Graph graph = quantized(QuantizedFormat::gptq);
  EXPECT_EQ(graph.parameters[1].name, "layers.0.up.qweight");
  EXPECT_EQ(graph.parameters[1].shape, (op::Dims{kIn / 8, kOut}));
  // One group: zeros of four bits, scales of two bytes; the group of each input.
  EXPECT_EQ(bytes_of(graph.buffers), kOut / 8 * 4 + kOut * 2 + kIn * 4);
}

// Biases, experts and whatever else has no name to be taken back by.
TEST(Quantize, OthersAreWhatIsNeitherNormNorEmbeddingNorHead) {
  Graph graph = small_model();
  graph.parameters.push_back(graph.parameters[0]);
  graph.parameters.back().role = ParameterRole::expert;
  graph.parameters.push_back(graph.parameters[0]);
  graph.parameters.back().role = ParameterRole::norm;
  QuantizeOptions options;
  options.float32_others = true;
  const Graph quantized = *apply_quantization(graph, options);
  EXPECT_EQ(quantized.parameters[0].dtype, std::nullopt);
  EXPECT_EQ(quantized.parameters[1].dtype, DType::u8);  // packed
  EXPECT_EQ(quantized.parameters[2].dtype, std::nullopt);
  EXPECT_EQ(quantized.parameters[3].dtype, DType::f32);
  EXPECT_EQ(quantized.parameters[4].dtype, std::nullopt);
}

TEST(Quantize, GptqWithoutGroupsHasOneScaleAnOutput) {
  QuantizeOptions options;
  options.format = QuantizedFormat::gptq;
  options.group_size = 0;
  const Graph graph = *apply_quantization(small_model(), options);
  EXPECT_EQ(bytes_of(graph.buffers), kOut / 8 * 4 + kOut * 2 + kIn * 4);
}

// A router of eight experts is nothing that GPTQ could pack, and nothing that it tries to.
TEST(Quantize, GptqLeavesRoutersAlone) {
  GraphBuilder g;
  {
    const Var x = g.parameter("start", {4, kIn}, ParameterRole::other);
    const Var up = g.parameter("layers.0.up.weight", {kIn, kIn}, ParameterRole::linear);
    const Var gate = g.parameter("layers.0.moe.gate.weight", {8, kIn}, ParameterRole::linear);
    const Var ids = g.input("labels", {4}, DType::i64);
    const Var logits = g.linear(g.linear(x, up), gate);
    g.set_outputs(g.cross_entropy(logits, ids), logits, {});
  }
  QuantizeOptions options;
  options.format = QuantizedFormat::gptq;
  const auto graph = apply_quantization(g.finish(), options);
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(graph->parameters[1].dtype, DType::i32);
  EXPECT_EQ(graph->parameters[2].dtype, std::nullopt);
}

// bitsandbytes makes a weight on the device from a copy in half precision, and loading goes by
// name.
TEST(Quantize, Nf4IsMadeFromACopyOnTheDevice) {
  LoraOptions lora;
  lora.targets = {"up"};
  const auto graph = apply_lora(quantized(QuantizedFormat::nf4_double), lora);
  ASSERT_TRUE(graph);
  TrainOptions options;
  options.steps = 1;
  const auto trace = trace_training(*graph, options);
  ASSERT_TRUE(trace);
  std::vector<int64_t> made;
  for (const memory::MemoryEvent& event : trace->memory.events) {
    if (event.kind != memory::EventKind::alloc) continue;
    made.push_back(trace->memory.buffers[event.buffer].requested_bytes);
    if (made.size() == 9) break;
  }
  // embed, head; the copy, its maxima, the weight, codes, offset, maxima of maxima, maxima.
  EXPECT_EQ(made, (std::vector<int64_t>{2 * 64 * kIn, 2 * 64 * kOut, 2 * kIn * kOut, 4 * 640,
                                        kIn * kOut / 2, 64, 4, 12, 640}));
}

// Of a second copy, in float16, and behind the rows' scales.
TEST(Quantize, Int8IsMadeFromTwoCopiesOnTheDevice) {
  TrainOptions options;
  options.steps = 1;
  LoraOptions lora;
  lora.targets = {"up"};
  const auto trace = trace_training(*apply_lora(quantized(QuantizedFormat::int8), lora), options);
  ASSERT_TRUE(trace);
  std::vector<int64_t> made;
  for (const memory::MemoryEvent& event : trace->memory.events) {
    if (event.kind != memory::EventKind::alloc) continue;
    made.push_back(trace->memory.buffers[event.buffer].requested_bytes);
    if (made.size() == 6) break;
  }
  EXPECT_EQ(made, (std::vector<int64_t>{2 * 64 * kIn, 2 * 64 * kOut, 2 * kIn * kOut,
                                        2 * kIn * kOut, 4 * kOut, kIn * kOut}));
}

TEST(Quantize, PeftsPreparationCastsAllElse) {
  const Graph graph = quantized(QuantizedFormat::nf4_double, true);
  EXPECT_EQ(graph.parameters[0].dtype, DType::f32);
  EXPECT_EQ(graph.parameters[1].dtype, DType::u8);
  EXPECT_EQ(graph.parameters[2].dtype, DType::f32);
}

TEST(Quantize, ACallUnpacksTheWeightAndLetsItGo) {
  LoraOptions lora;
  lora.rank = 2;
  lora.targets = {"up"};
  for (const QuantizedFormat format : {QuantizedFormat::nf4, QuantizedFormat::nf4_double,
                                       QuantizedFormat::int8, QuantizedFormat::gptq}) {
    const auto graph = apply_lora(quantized(format), lora);
    ASSERT_TRUE(graph);
    TrainOptions options;
    options.steps = 1;
    const auto trace = trace_training(*graph, options);
    ASSERT_TRUE(trace);
    int unpacked = 0;
    for (const memory::BufferInfo& buffer : trace->memory.buffers) {
      unpacked += buffer.requested_bytes == 2 * kIn * kOut ? 1 : 0;
    }
    // Forward only: nothing that the weight is applied to wants a gradient. int8 never unpacks
    // there, and its weights are made from two copies as large; nf4 weights are made from one.
    const bool is_nf4 = format == QuantizedFormat::nf4 || format == QuantizedFormat::nf4_double;
    const bool is_int8 = format == QuantizedFormat::int8;
    EXPECT_EQ(unpacked, is_nf4 || is_int8 ? 2 : 1);
  }
}

TEST(Quantize, NothingToQuantizeIsAnError) {
  Graph graph = small_model();
  for (model::Parameter& parameter : graph.parameters) parameter.role = ParameterRole::other;
  EXPECT_FALSE(apply_quantization(graph, {}));
}

}  // namespace
}  // namespace headroom::step
