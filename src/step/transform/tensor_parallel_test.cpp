// Tensor parallelism: what N ranks compute and hold adds up to the whole.
#include "step/transform/tensor_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/load.h"
#include "step/train_step.h"
#include "step/transform/lora.h"
#include "step/transform/tensor_plan.h"

namespace headroom::step {
namespace {

using model::Graph;
using op::OpGroup;
using op::OpKind;

constexpr int64_t kLayers = 3;

// GPT's configurations have names of their own for the same sizes.
Graph tiny(const std::string& model_type, int64_t key_value_heads = 4,
           const std::string& more = "") {
  const auto config = text::parse_json(R"({"model_type": ")" + model_type +
                                           R"(", "vocab_size": 512, "hidden_size": 64, "n_embd": 64,
          "word_embed_proj_dim": 64, "ffn_dim": 128, "n_inner": 128, "do_layer_norm_before": true,
          "intermediate_size": 128, "num_hidden_layers": 3, "n_layer": 3, "num_layers": 3,
          "attention_types": [[["global"], 3]], "rotary_dim": 8, "multi_query": true,
          "n_head": 8, "num_attention_heads": 8, "num_heads": 8, "n_positions": 128,
          "head_dim": 8,
          "num_key_value_heads": )" + std::to_string(key_value_heads) +
                                           R"(, "max_position_embeddings": 128)" + more + "}",
                                       "test");
  model::BuildOptions build;
  build.batch = 2;
  build.sequence = 32;
  return model::build_graph({*config, "test"}, build).value();
}

Result<Graph> divided(const Graph& graph, std::string_view model_type, int64_t ranks) {
  return apply_tensor_parallel(graph,
                               {.ranks = ranks, .model_type = model_type, .cuts_gradients = false});
}

struct Totals {
  double products = 0;   // FLOPs
  double attention = 0;  // FLOPs
  int64_t reductions = 0;
  int64_t gathers = 0;
};

Totals totals_of(const Graph& graph) {
  const auto trace = trace_training(graph, {});
  Totals totals;
  for (const OperatorCall& call : trace.value().calls) {
    if (op::group_of(call.kind) == OpGroup::gemm) totals.products += call.flops;
    if (op::group_of(call.kind) == OpGroup::attention) totals.attention += call.flops;
    if (call.kind == OpKind::all_reduce) ++totals.reductions;
    if (call.kind == OpKind::all_gather) ++totals.gathers;
    if (op::group_of(call.kind) == OpGroup::communication) {
      EXPECT_EQ(call.peers, Peers::tensor);
    }
  }
  return totals;
}

Graph with_adapters(const std::string& model_type, std::vector<std::string> targets) {
  LoraOptions lora;
  lora.rank = 4;
  lora.targets = std::move(targets);
  lora.model_type = model_type;
  return apply_lora(tiny(model_type), lora).value();
}

// As peft has them: of queries the second matrix, of answers the first.
TEST(TensorParallel, AdaptersAreDividedAsTheirModulesAre) {
  const Graph rank = divided(with_adapters("llama", {"q_proj", "o_proj"}), "llama", 4).value();
  const auto shape_of = [&](const std::string& end) {
    const auto found = std::ranges::find_if(
        rank.parameters,
        [&](const model::Parameter& parameter) { return parameter.name.ends_with(end); });
    return found == rank.parameters.end() ? op::Dims{} : found->shape;
  };
  EXPECT_EQ(shape_of("0.self_attn.q_proj.lora_A.default.weight"), (op::Dims{4, 64}));
  EXPECT_EQ(shape_of("0.self_attn.q_proj.lora_B.default.weight"), (op::Dims{16, 4}));
  EXPECT_EQ(shape_of("0.self_attn.o_proj.lora_A.default.weight"), (op::Dims{4, 16}));
  EXPECT_EQ(shape_of("0.self_attn.o_proj.lora_B.default.weight"), (op::Dims{64, 4}));
  EXPECT_EQ(shape_of("0.self_attn.q_proj.base_layer.weight"), (op::Dims{16, 64}));
}

TEST(TensorParallel, AdaptersThatPeftDoesNotDivideAreRefused) {
  const auto packed = divided(with_adapters("phi3", {"qkv_proj"}), "phi3", 4);
  ASSERT_FALSE(packed);
  EXPECT_NE(packed.error().to_string().find("qkv_proj"), std::string::npos);
  const auto head = divided(with_adapters("llama", {"lm_head"}), "llama", 4);
  ASSERT_FALSE(head);
  EXPECT_NE(head.error().to_string().find("lm_head"), std::string::npos);
  EXPECT_FALSE(divided(with_adapters("opt", {"q_proj"}), "opt", 4));
}

TEST(TensorParallel, RanksTogetherComputeWhatOneDoes) {
  for (const std::string_view model_type : planned_architectures()) {
    // Its attention stays whole.
    if (model_type == "gpt_bigcode") continue;
    const Graph whole = tiny(std::string(model_type));
    const Totals one = totals_of(whole);
    const auto rank = divided(whole, model_type, 4);
    ASSERT_TRUE(rank) << model_type << ": " << rank.error().to_string();
    const Totals part = totals_of(*rank);
    EXPECT_DOUBLE_EQ(4 * part.products, one.products) << model_type;
    // Of these the products alone are divided: queries, keys and values are put together again.
    const bool gathers_heads =
        model_type == "phi3" || model_type == "olmo2" || model_type == "olmo3";
    const double share = gathers_heads ? 1 : 4;
    EXPECT_DOUBLE_EQ(share * part.attention, one.attention) << model_type;
  }
}

TEST(TensorParallel, ARankHoldsItsPartOfEveryWeightOfThePlan) {
  const Graph whole = tiny("llama");
  const auto rank = divided(whole, "llama", 4);
  ASSERT_TRUE(rank);
  ASSERT_EQ(rank->parameters.size(), whole.parameters.size());
  for (size_t i = 0; i < whole.parameters.size(); ++i) {
    const model::Parameter& before = whole.parameters[i];
    const int64_t share = before.name.find("norm") == std::string::npos ? 4 : 1;
    EXPECT_EQ(share * op::product(rank->parameters[i].shape), op::product(before.shape))
        << before.name;
  }
}

// Forward: attention, feed-forward, embedding. Backward: queries, keys, values, gate and up each
// sum the gradient of their input, and the head that of its own. Two steps.
TEST(TensorParallel, CollectivesAreThoseOfThePlan) {
  const auto rank = divided(tiny("llama"), "llama", 2);
  ASSERT_TRUE(rank);
  const Totals totals = totals_of(*rank);
  EXPECT_EQ(totals.reductions, 2 * (kLayers * (2 + 5) + 1 + 1));
  EXPECT_EQ(totals.gathers, 2);
}

TEST(TensorParallel, FoldedLayersSayTheSame) {
  const auto config = text::parse_json(
      R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 9, "num_attention_heads": 4, "max_position_embeddings": 128})",
      "test");
  const Graph whole = model::build_graph({*config, "test"}, {}).value();
  const auto rank = divided(whole, "llama", 2);
  ASSERT_TRUE(rank);
  TrainOptions options;
  const auto folded = trace_training(*rank, options);
  options.fold_layers = false;
  const auto run = trace_training(*rank, options);
  ASSERT_TRUE(folded && run);
  EXPECT_GT(folded->unfolded_units, 0U);
  EXPECT_EQ(folded->memory.events.size(), run->memory.events.size());
  EXPECT_EQ(folded->peak_live_bytes, run->peak_live_bytes);
  ASSERT_EQ(folded->calls.size(), run->calls.size());
  for (size_t i = 0; i < run->calls.size(); ++i) {
    ASSERT_EQ(folded->calls[i].kind, run->calls[i].kind) << i;
    ASSERT_EQ(folded->calls[i].peers, run->calls[i].peers) << i;
    ASSERT_EQ(folded->calls[i].awaits, run->calls[i].awaits) << i;
  }
}

TEST(TensorParallel, AnEmbeddingsGradientIsWholeUnlessItIsCut) {
  const Graph whole = tiny("llama");
  const auto gradient_bytes = [&](bool cuts) {
    const auto rank =
        apply_tensor_parallel(whole, {.ranks = 4, .model_type = "llama", .cuts_gradients = cuts});
    const auto trace = trace_training(rank.value(), {});
    int64_t most = 0;
    for (const memory::BufferInfo& buffer : trace.value().memory.buffers) {
      if (buffer.category != memory::Category::gradient) continue;
      most = std::max(most, buffer.requested_bytes);
    }
    return most;
  };
  EXPECT_EQ(gradient_bytes(false), 512 * 64 * 2);
  EXPECT_EQ(gradient_bytes(true), 512 * 64 * 2 / 4);
}

// Eight heads among three, by a plan of ours: the first rank has the largest part of each product.
TEST(TensorParallel, HeadsThatDoNotComeOutEvenStayWhole) {
  const Graph whole = tiny("opt");
  const Totals one = totals_of(whole);
  const auto rank = divided(whole, "opt", 3);
  ASSERT_TRUE(rank) << rank.error().to_string();
  const Totals part = totals_of(*rank);
  EXPECT_DOUBLE_EQ(part.attention, one.attention);
  EXPECT_GT(3 * part.products, one.products);
  EXPECT_LT(3 * part.products, 1.1 * one.products);
}

TEST(TensorParallel, RefusesWhatItCannotDivide) {
  const auto heads = divided(tiny("llama", 2), "llama", 4);
  ASSERT_FALSE(heads);
  EXPECT_NE(heads.error().message.find("2 heads"), std::string::npos) << heads.error().message;
  EXPECT_FALSE(divided(tiny("llama"), "llama", 3));
  const auto unknown = divided(tiny("llama"), "mixtral", 2);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("mixtral"), std::string::npos);
  const auto normed = divided(tiny("cohere", 4, R"(, "use_qk_norm": true)"), "cohere", 2);
  ASSERT_FALSE(normed);
  EXPECT_NE(normed.error().message.find("a vector for each head"), std::string::npos);
}

}  // namespace
}  // namespace headroom::step
