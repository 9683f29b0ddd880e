#include "model/blocks/loss.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/load.h"
#include "text/json.h"

namespace headroom::model {
namespace {

constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 96, "n_positions": 64, "n_embd": 32, "n_layer": 1,
        "n_head": 4})";
constexpr const char* kGptNeo =
    R"({"model_type": "gpt_neo", "vocab_size": 96, "max_position_embeddings": 64, "hidden_size": 32,
        "num_layers": 1, "num_heads": 4, "attention_types": [[["global"], 1]]})";
constexpr const char* kMistral =
    R"({"model_type": "mistral", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2})";
constexpr const char* kGptBigCode =
    R"({"model_type": "gpt_bigcode", "vocab_size": 96, "n_positions": 64, "n_embd": 32,
        "n_layer": 2, "n_head": 4, "multi_query": true})";

Graph built(const char* config, op::Version transformers) {
  const text::Json json = text::parse_json(config, "config.json").value();
  BuildOptions options;
  options.batch = 2;
  options.sequence = 16;
  options.attention = Attention::eager;
  options.transformers = transformers;
  return build_graph({json, "config.json"}, options).value();
}

// Operations of one kind between the head's product and the loss.
int64_t count_in_loss(const Graph& graph, OpKind kind) {
  const auto loss = std::ranges::find(graph.regions, RegionKind::loss, &Region::kind);
  int64_t count = 0;
  for (uint32_t i = loss->begin; i < loss->end; ++i) {
    const Instruction& instruction = graph.instructions[i];
    if (instruction.kind != InstructionKind::operation) continue;
    const Operation& operation = graph.operations[instruction.index];
    count += operation.kind == kind && operation.attributes.dtype == DType::f32 ? 1 : 0;
  }
  return count;
}

bool returns_what_the_head_made(const Graph& graph) {
  const auto head = std::ranges::find(graph.regions, RegionKind::lm_head, &Region::kind);
  return std::ranges::find(head->outputs, graph.logits) != head->outputs.end();
}

TEST(CausalLmLoss, OldModelsKeepTheirLogitsType) {
  EXPECT_EQ(count_in_loss(built(kGpt2, {4, 48}), OpKind::cast), 0);
  EXPECT_EQ(count_in_loss(built(kGpt2, {4, 49}), OpKind::cast), 1);
}

TEST(CausalLmLoss, ModelsThatWidenedTheirOwnLogitsReturnedThem) {
  EXPECT_FALSE(returns_what_the_head_made(built(kMistral, {4, 47})));
  EXPECT_TRUE(returns_what_the_head_made(built(kMistral, {4, 48})));
  EXPECT_FALSE(returns_what_the_head_made(built(kGptNeo, {4, 48})));
}

// Its layers put out a cache beside the hidden states until 4.53, under checkpoints too.
TEST(GptBigCode, OldVersionsMakeACacheInTraining) {
  const Graph old = built(kGptBigCode, {4, 48});
  EXPECT_EQ(old.outputs.size(), 2u);
  for (const Region& region : old.regions) {
    if (region.kind == RegionKind::layer) {
      EXPECT_EQ(region.outputs.size(), 2u);
    }
  }
  EXPECT_TRUE(built(kGptBigCode, {4, 53}).outputs.empty());
}

}  // namespace
}  // namespace headroom::model
