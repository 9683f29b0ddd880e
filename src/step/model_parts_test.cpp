#include "step/model_parts.h"

#include <gtest/gtest.h>

namespace headroom::step {
namespace {

std::vector<int64_t> layers_of(const std::vector<model::ModelPart>& parts) {
  std::vector<int64_t> layers;
  for (const model::ModelPart& part : parts) layers.push_back(part.layers);
  return layers;
}

TEST(ModelParts, EndsCountAsALayerEach) {
  EXPECT_EQ(layers_of(*model_parts(32, 4)), (std::vector<int64_t>{8, 9, 8, 7}));
  EXPECT_EQ(layers_of(*model_parts(30, 4)), (std::vector<int64_t>{7, 8, 8, 7}));
  EXPECT_EQ(layers_of(*model_parts(6, 1)), (std::vector<int64_t>{6}));
}

TEST(ModelParts, EveryLayerIsInOnePart) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int64_t parts = 1; parts <= layers + 2; ++parts) {
      const auto all = model_parts(layers, parts);
      ASSERT_TRUE(all);
      int64_t next = 0;
      for (const model::ModelPart& part : *all) {
        EXPECT_EQ(part.first_layer, next);
        EXPECT_GE(part.layers, 0);
        next += part.layers;
      }
      EXPECT_EQ(next, layers);
      EXPECT_TRUE(all->front().is_first && all->back().is_last);
    }
    EXPECT_FALSE(model_parts(layers, layers + 3));
  }
}

TEST(ModelParts, SaidOnesFollowEachOther) {
  const auto all = model_parts(std::vector<int64_t>{0, 4, 2});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(layers_of(all), (std::vector<int64_t>{0, 4, 2}));
  EXPECT_EQ(all[1].first_layer, 0);
  EXPECT_EQ(all[2].first_layer, 4);
  EXPECT_TRUE(all[0].is_first && !all[1].is_first && !all[1].is_last && all[2].is_last);
}

TEST(ModelParts, ARankHasEverySoManyOfThem) {
  const auto own = parts_of_rank(*model_parts(6, 4), 2, 1);
  ASSERT_EQ(own.size(), 2U);
  EXPECT_FALSE(own[0].is_first || own[0].is_last);
  EXPECT_TRUE(own[1].is_last);
}

}  // namespace
}  // namespace headroom::step
