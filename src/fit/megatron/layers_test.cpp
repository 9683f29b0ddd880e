#include "fit/megatron/layers.h"

#include <gtest/gtest.h>

namespace headroom::fit {
namespace {

using Stages = std::vector<std::vector<int64_t>>;

engines::MegatronArguments arguments(int64_t layers, int64_t stages) {
  engines::MegatronArguments arguments;
  arguments.layers = layers;
  arguments.stages = stages;
  return arguments;
}

TEST(MegatronLayers, AreSharedEvenlyAndByChunks) {
  auto from = arguments(8, 2);
  EXPECT_EQ(*layers_by_stage(from, "f"), (Stages{{4}, {4}}));
  from.chunk_layers = 2;
  EXPECT_EQ(*layers_by_stage(from, "f"), (Stages{{2, 2}, {2, 2}}));
  from.chunk_layers.reset();
  from.chunks = 4;
  EXPECT_EQ(*layers_by_stage(from, "f"), (Stages{{1, 1, 1, 1}, {1, 1, 1, 1}}));
}

// Llama-3.1-405B's recipe: 126 layers, embedding and loss counted, on 16 stages.
TEST(MegatronLayers, EmbeddingAndLossMayTakeALayersPlace) {
  auto from = arguments(126, 16);
  from.embedding_is_layer = from.loss_is_layer = true;
  from.chunks = 8;
  const auto stages = *layers_by_stage(from, "f");
  EXPECT_EQ(stages[0], (std::vector<int64_t>{0, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(stages[7], (std::vector<int64_t>(8, 1)));
  EXPECT_EQ(stages[15], (std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 0}));
}

TEST(MegatronLayers, EndsMayDiffer) {
  auto from = arguments(61, 16);
  from.last_layers = 1;
  EXPECT_EQ((*layers_by_stage(from, "f"))[15], (std::vector<int64_t>{1}));
  EXPECT_EQ((*layers_by_stage(from, "f"))[0], (std::vector<int64_t>{4}));
  from.layers = 9;
  from.stages = 2;
  from.first_layers = 8;
  EXPECT_EQ(*layers_by_stage(from, "f"), (Stages{{8}, {1}}));
}

TEST(MegatronLayers, ALayoutSaysAll) {
  auto from = arguments(9, 2);
  from.layout = {3, 2, 4, 0};
  EXPECT_EQ(*layers_by_stage(from, "f"), (Stages{{3, 4}, {2, 0}}));
}

TEST(MegatronLayers, WhatDoesNotDivideIsAnError) {
  auto uneven = arguments(9, 2);
  EXPECT_FALSE(layers_by_stage(uneven, "f"));
  uneven.first_layers = 10;
  EXPECT_FALSE(layers_by_stage(uneven, "f"));
  uneven.first_layers = 4;
  uneven.last_layers = 4;
  EXPECT_FALSE(layers_by_stage(uneven, "f"));
  auto one = arguments(9, 1);
  one.first_layers = one.last_layers = 4;
  EXPECT_FALSE(layers_by_stage(one, "f"));
  auto chunks = arguments(8, 2);
  chunks.chunks = 3;
  EXPECT_FALSE(layers_by_stage(chunks, "f"));
  chunks.chunks = int64_t{1} << 31;
  EXPECT_FALSE(layers_by_stage(chunks, "f"));
  auto layout = arguments(8, 3);
  layout.layout = {4, 4};
  EXPECT_FALSE(layers_by_stage(layout, "f"));
  EXPECT_FALSE(layers_by_stage(arguments(int64_t{1} << 31, 1), "f"));
}

TEST(MegatronLayers, PassesAreBoundedByStagesChunksAndLayers) {
  EXPECT_TRUE(check_passes(1, 1, 1024));
  EXPECT_TRUE(check_passes(64, 2, 2));
  EXPECT_TRUE(check_passes(16, 8, 8));
  EXPECT_TRUE(check_passes(128, 1, 1));
  constexpr int64_t kMuch = int64_t{1} << 62;
  EXPECT_FALSE(check_passes(4096, 1, 1));
  EXPECT_FALSE(check_passes(4, kMuch, 1));
  EXPECT_FALSE(check_passes(4, 1, kMuch));
  EXPECT_FALSE(check_passes(kMuch, kMuch, kMuch));
  auto wide = arguments(1024, 16);  // all of the layers in one of many chunks
  wide.layout.assign(16 * 256, 0);
  wide.layout.back() = 1024;
  EXPECT_NE(layers_by_stage(wide, "f").error().message.find("gone through"), std::string::npos);
}

}  // namespace
}  // namespace headroom::fit
