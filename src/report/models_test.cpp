#include "report/models.h"

#include <gtest/gtest.h>

namespace headroom::report {
namespace {

Result<model::Graph> no_graph(const text::JsonView& config, const model::BuildOptions&) {
  return config.error("not built here");
}

const std::array<model::Family, 2> kFamilies{{{"gpt2", no_graph}, {"llama", no_graph}}};

model::BuiltinModel sample(std::string id, std::string family) {
  text::Json config = text::Json::object()
                          .set("model_type", std::move(family))
                          .set("n_layer", 12)
                          .set("hidden_size", 768)
                          .set("num_attention_heads", "twelve")
                          .set("vocab_size", 50257);
  return {std::move(id), std::move(config), 124439808};
}

TEST(Models, SizesAreFoundUnderEachFamilysNames) {
  const std::vector<model::BuiltinModel> models{sample("lab/small", "gpt2"),
                                                sample("lab/other", "mamba")};
  const text::Json json = models_json(models, kFamilies);
  const text::Json& first = json.find("models")->items()[0];
  EXPECT_EQ(first.find("layers")->as_int(), 12);
  EXPECT_EQ(first.find("hidden")->as_int(), 768);
  EXPECT_TRUE(first.find("heads")->is_null());
  EXPECT_TRUE(first.find("can_be_modelled")->as_bool());
  EXPECT_FALSE(json.find("models")->items()[1].find("can_be_modelled")->as_bool());
  EXPECT_EQ(json.find("families")->size(), 2U);
}

TEST(Models, TextHasALineAModelAndTheFamilies) {
  const std::vector<model::BuiltinModel> models{sample("lab/small", "gpt2")};
  const std::string text = models_text(models, kFamilies, {});
  EXPECT_NE(text.find("lab/small"), std::string::npos);
  EXPECT_NE(text.find("124.4 M"), std::string::npos) << text;
  EXPECT_NE(text.find("gpt2, llama"), std::string::npos) << text;
}

TEST(Models, OneModelShowsItsConfigurationAndWhetherItCanBeModelled) {
  EXPECT_NE(model_text(sample("lab/small", "gpt2"), kFamilies, {}).find("\"vocab_size\": 50257"),
            std::string::npos);
  EXPECT_NE(model_text(sample("lab/x", "mamba"), kFamilies, {}).find("cannot be modelled yet"),
            std::string::npos);
}

}  // namespace
}  // namespace headroom::report
