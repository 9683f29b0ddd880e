#include "model/builtin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "base/file.h"
#include "model/load.h"

namespace headroom::model {
namespace {

namespace fs = std::filesystem;

std::string found(std::string_view name) {
  const Result<const BuiltinModel*> model = find_builtin(name);
  return model ? (*model)->id : "error: " + model.error().to_string();
}

const Family* family_of(const BuiltinModel& model) {
  const Result<const Family*> family = find_family({model.config, model.id});
  return family ? *family : nullptr;
}

int64_t elements(const Dims& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// What a checkpoint holds: parameters, tied ones once, and the buffers that are saved with them.
int64_t checkpoint_elements(const Graph& graph) {
  int64_t count = parameter_count(graph, false);
  for (const Parameter& buffer : graph.buffers) {
    if (buffer.persistent) count += elements(buffer.shape);
  }
  return count;
}

TEST(Builtin, ModelsHaveAsManyParametersAsWerePublished) {
  BuildOptions options;
  options.batch = 1;
  options.sequence = 8;
  std::set<std::string> unknown_families;
  int compared = 0;
  for (const BuiltinModel& model : builtin_models()) {
    SCOPED_TRACE(model.id);
    const Family* family = family_of(model);
    if (family == nullptr) {
      unknown_families.insert(model.config.find("model_type")->as_string());
      continue;
    }
    const Result<Graph> graph = family->build({model.config, model.id}, options);
    ASSERT_TRUE(graph.has_value()) << graph.error().to_string();
    if (!model.parameters) continue;
    EXPECT_EQ(checkpoint_elements(*graph), *model.parameters);
    ++compared;
  }
  EXPECT_GT(compared, 40);
  for (const std::string& family : unknown_families) {
    std::cout << "not compared: models of family " << family << ", which cannot be built\n";
  }
}

TEST(Builtin, PublishedCountsOfSomeModels) {
  const auto published = [](std::string_view name) { return (*find_builtin(name))->parameters; };
  EXPECT_EQ(published("openai-community/gpt2"), 124'439'808);
  EXPECT_EQ(published("facebook/opt-1.3b"), 1'315'758'080);
  EXPECT_EQ(published("mistralai/Mistral-7B-v0.1"), 7'241'732'096);
  EXPECT_EQ(published("mistralai/Mistral-7B-Instruct-v0.1"), 7'241'732'096);
  EXPECT_EQ(published("mistralai/Mixtral-8x7B-v0.1"), 46'702'792'704);
  EXPECT_EQ(published("meta-llama/Llama-3.2-3B"), 3'212'749'824);
  EXPECT_EQ(published("facebook/opt-66b"), std::nullopt);
}

TEST(Builtin, EveryEntryIsAModelOfItsOwnName) {
  std::set<std::string> names;
  for (const BuiltinModel& model : builtin_models()) {
    SCOPED_TRACE(model.id);
    EXPECT_TRUE(names.insert(model.id).second);
    EXPECT_EQ(found(model.id), model.id);
    EXPECT_NE(model.id.find('/'), std::string::npos);
    EXPECT_TRUE(text::JsonView(model.config, model.id).get_string("model_type").has_value());
  }
}

TEST(Builtin, FindsByShortNameAndInAnyCapitals) {
  EXPECT_EQ(found("gpt2"), "openai-community/gpt2");
  EXPECT_EQ(found("mistral-7b-v0.1"), "mistralai/Mistral-7B-v0.1");
  EXPECT_EQ(found("META-LLAMA/llama-3.2-3b"), "meta-llama/Llama-3.2-3B");
}

TEST(Builtin, NamesWhatAnAmbiguousNameMayBe) {
  std::vector<BuiltinModel> models{{"one/Model-7b", {}, {}}, {"two/model-7B", {}, {}}};
  EXPECT_EQ((*find_model("model-7b", models))->id, "one/Model-7b") << "a copy of it";
  models[1].config = text::Json(int64_t{1});
  EXPECT_EQ((*find_model("TWO/model-7b", models))->id, "two/model-7B");
  const Result<const BuiltinModel*> model = find_model("model-7b", models);
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().to_string(),
            "model 'model-7b' is ambiguous (it may be one/Model-7b, two/model-7B)");
}

TEST(Builtin, ProposesWhatWasMeant) {
  EXPECT_EQ(found("openai-community/gpt-2")
                .find("error: model 'openai-community/gpt-2' is not "
                      "known (did you mean openai-community/gpt2?"),
            0U)
      << found("openai-community/gpt-2");
  EXPECT_EQ(found("mistral-7b-v0.2").find("error: model 'mistral-7b-v0.2' is not known (did you"),
            0U)
      << found("mistral-7b-v0.2");
  EXPECT_EQ(found("quite another thing").find("did you mean"), std::string::npos);
  EXPECT_EQ(found(std::string(100'000, 'x')).find("error: model 'xxx"), 0U);
}

// A folder of its own, and an environment in which the Hugging Face cache lies in it.
class Resolve : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(testing::TempDir()) /
        ("headroom_resolve_" + std::to_string(testing::UnitTest::GetInstance()->random_seed()) +
         testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    unsetenv("HF_HUB_CACHE");
    setenv("HF_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("HF_HOME");
    fs::remove_all(folder_);
  }
  std::string write(const std::string& name, std::string_view content) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    EXPECT_TRUE(write_file_atomic(path.string(), content).has_value());
    return path.string();
  }
  static int64_t layers(const Result<ResolvedModel>& model) {
    if (!model) return -1;
    const Result<int64_t> count = model->view().get_int("num_hidden_layers", 0, 1000);
    return count ? *count : -1;
  }
  fs::path folder_;
};

TEST_F(Resolve, BuiltinModels) {
  const Result<ResolvedModel> model = resolve_model("gpt2-xl");
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->name, "openai-community/gpt2-xl");
  EXPECT_EQ(model->source, ModelSource::builtin);
  EXPECT_EQ(*model->view().get_int("n_embd", 0, 10'000), 1600);
  EXPECT_EQ(*model->view().get_int("vocab_size", 0, 100'000), 50257);
}

TEST_F(Resolve, FilesAndFolders) {
  const std::string file = write("mine/config.json", R"({"num_hidden_layers": 3})");
  for (const std::string& name : {file, fs::path(file).parent_path().string()}) {
    const Result<ResolvedModel> model = resolve_model(name);
    EXPECT_EQ(layers(model), 3);
    EXPECT_EQ(model->name, name);
    EXPECT_EQ(model->source, ModelSource::file);
    EXPECT_EQ(model->file, file);
  }
  const Result<ResolvedModel> empty = resolve_model(folder_.string());
  ASSERT_FALSE(empty.has_value());
  EXPECT_NE(empty.error().to_string().find("config.json"), std::string::npos);
  EXPECT_FALSE(resolve_model(write("list.json", "[1]")).has_value());
  EXPECT_FALSE(resolve_model(write("cut.json", R"({"model_type":)")).has_value());
}

TEST_F(Resolve, CacheEntriesByTheirCurrentRevision) {
  const std::string entry = "hub/models--someone--Their-Model/";
  write(entry + "snapshots/aaaa/config.json", R"({"num_hidden_layers": 1})");
  write(entry + "snapshots/bbbb/config.json", R"({"num_hidden_layers": 2})");
  EXPECT_EQ(layers(resolve_model("someone/Their-Model")), 2);
  write(entry + "refs/main", "aaaa");
  const Result<ResolvedModel> model = resolve_model("someone/Their-Model");
  EXPECT_EQ(layers(model), 1);
  EXPECT_EQ(model->name, "someone/Their-Model");
  EXPECT_EQ(model->source, ModelSource::cache);
  write(entry + "refs/main", "../../../..");
  EXPECT_EQ(layers(resolve_model("someone/Their-Model")), 2);
  write("hub/models--plain/snapshots/c/config.json", R"({"num_hidden_layers": 4})");
  EXPECT_EQ(layers(resolve_model("plain")), 4);
}

TEST_F(Resolve, RefusesWhatIsNoModel) {
  for (const std::string& name :
       {std::string(), std::string("nobody/nothing"), std::string("a\0b", 3),
        std::string(5000, 'y'), std::string("train.py:build")}) {
    const Result<ResolvedModel> model = resolve_model(name);
    ASSERT_FALSE(model.has_value()) << name;
    EXPECT_EQ(model.error().code, ErrorCode::usage);
    EXPECT_FALSE(model.error().hint.empty());
  }
  // What can only be a path is a file that is not there.
  EXPECT_EQ(resolve_model("../../etc/x").error().code, ErrorCode::bad_input);
  EXPECT_TRUE(is_python_function("folder/train.py:build"));
  EXPECT_FALSE(is_python_function("train.py"));
  EXPECT_FALSE(is_python_function("train.py:"));
}

TEST(Builtin, EveryModelHasAFamily) {
  for (const BuiltinModel& model : builtin_models()) {
    EXPECT_TRUE(find_family({model.config, model.id}).has_value()) << model.id;
  }
}

}  // namespace
}  // namespace headroom::model
