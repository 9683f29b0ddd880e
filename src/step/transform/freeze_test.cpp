#include "step/transform/freeze.h"

#include <gtest/gtest.h>

namespace headroom::step {
namespace {

TEST(Freeze, NamesPartsByTheirDots) {
  const std::string name = "model.layers.12.mlp.up_proj.weight";
  EXPECT_TRUE(names_part("mlp", name));
  EXPECT_TRUE(names_part("layers.0-15", name));
  EXPECT_TRUE(names_part("layers.12-12.mlp", name));
  EXPECT_TRUE(names_part(name, name));
  EXPECT_FALSE(names_part("layers.0-11", name));
  EXPECT_FALSE(names_part("layers.1", name));
  EXPECT_FALSE(names_part("up", name));
  EXPECT_FALSE(names_part("layers.mlp", name));
  EXPECT_FALSE(names_part("layers.5-", name));
  EXPECT_FALSE(names_part("", name));
}

model::Graph two_parameters() {
  model::Graph graph;
  graph.parameters.resize(3);
  graph.parameters[0].name = "embed.weight";
  graph.parameters[1].name = "layer.weight";
  graph.parameters[2].name = "head.weight";
  graph.parameters[2].tied_to = 0;
  return graph;
}

TEST(Freeze, FreezesWhatIsNamedUnderAnyName) {
  const auto frozen = apply_freeze(two_parameters(), {"head"});
  ASSERT_TRUE(frozen);
  EXPECT_FALSE(frozen->parameters[0].trainable);
  EXPECT_TRUE(frozen->parameters[1].trainable);
}

TEST(Freeze, RefusesNamesOfNothingAndModelsWithNothingLeft) {
  EXPECT_FALSE(apply_freeze(two_parameters(), {"embed", "attention"}));
  EXPECT_FALSE(apply_freeze(two_parameters(), {"weight"}));
}

}  // namespace
}  // namespace headroom::step
