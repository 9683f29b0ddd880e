#include "bench/nongemm_models.h"

#include <algorithm>

#include "base/suggest.h"
#include "model/builtin.h"
#include "model/onnx_file.h"
#include "model/onnx_run.h"

namespace headroom::embedded {
extern const std::string_view kNongemmModelsJson;
}

namespace headroom::bench {
namespace {

using text::Json;
using text::JsonView;

constexpr int64_t kMostParameters = int64_t{1} << 50;

Result<NongemmModel> read_entry(const JsonView& view, const JsonView& sources) {
  NongemmModel model;
  HEADROOM_ASSIGN(model.name, view.get_string("name"));
  HEADROOM_ASSIGN(model.title, view.get_string("title"));
  HEADROOM_ASSIGN(model.set, view.get_string("set"));
  HEADROOM_ASSIGN(model.parameters, view.optional_int("parameters", 1, kMostParameters));
  HEADROOM_ASSIGN(const std::string source, view.get_string("source"));
  HEADROOM_ASSIGN(model.source, sources.get_string(source));
  model.recipe = Json::object().set("name", model.name);
  for (const std::string_view key : {"class", "config", "inputs", "module"}) {
    if (const Json* value = view.json().find(key)) model.recipe.set(key, *value);
  }
  HEADROOM_ASSIGN(const auto builtin, view.optional_string("builtin"));
  if (builtin) {
    HEADROOM_ASSIGN(const model::BuiltinModel* found, model::find_builtin(*builtin));
    model.recipe.set("config", found->config);
    if (!model.parameters) model.parameters = found->parameters;
  }
  return model;
}

Result<std::vector<NongemmModel>> read_table(std::string_view json) {
  HEADROOM_ASSIGN(const Json root, text::parse_json(json, "built-in nongemm_models.json"));
  const JsonView view(root, "built-in nongemm_models.json");
  HEADROOM_ASSIGN(const JsonView sources, view.get_object("sources"));
  HEADROOM_ASSIGN(const auto entries, view.get_array("models"));
  std::vector<NongemmModel> models;
  for (const JsonView& entry : entries) {
    HEADROOM_ASSIGN(NongemmModel model, read_entry(entry, sources));
    models.push_back(std::move(model));
  }
  return models;
}

// What a model of that configuration is given: an image where it has an image's size.
Json inputs_for(const Json& config, int64_t tokens) {
  const Json* image = config.find("image_size");
  if (image == nullptr || !image->is_integer() || image->as_int() < 1) {
    return Json::object().set("tokens", tokens);
  }
  const Json* channels = config.find("num_channels");
  const bool has_channels = channels != nullptr && channels->is_integer();
  return Json::object().set("pixel_values", Json::array()
                                                .push_back(has_channels ? channels->as_int() : 3)
                                                .push_back(image->as_int())
                                                .push_back(image->as_int()));
}

// What a file of ONNX is given, of each input of each dimension [fixed, times the batch]: open
// sizes are those of two batches apart, since names stand for sizes and sums of them alone.
Result<Json> onnx_shapes(const model::OnnxModel& onnx, int64_t tokens) {
  std::vector<std::vector<std::vector<int64_t>>> of_batch;
  for (const int64_t batch : {1, 2}) {
    auto sizes = model::onnx_input_sizes(onnx, {.batch = batch, .sequence = tokens});
    if (!sizes) {
      Error error = std::move(sizes).error();
      if (error.code == ErrorCode::usage) {  // `ops` has a flag for it
        error.code = ErrorCode::bad_input;
        error.hint = "fix it in the file (python -m onnxruntime.tools.make_dynamic_shape_fixed)";
      }
      return error;
    }
    of_batch.push_back(std::move(*sizes));
  }
  Json shapes = Json::array();
  for (size_t input = 0; input < of_batch[0].size(); ++input) {
    Json shape = Json::array();
    for (size_t place = 0; place < of_batch[0][input].size(); ++place) {
      const int64_t one = of_batch[0][input][place];
      const int64_t times = of_batch[1][input][place] - one;
      shape.push_back(Json::array().push_back(one - times).push_back(times));
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace

const std::vector<NongemmModel>& nongemm_models() {
  static const std::vector<NongemmModel> models = [] {
    auto read = read_table(embedded::kNongemmModelsJson);
    HEADROOM_CHECK(read.has_value(), "the built-in nongemm_models.json is malformed");
    return std::move(read).value();
  }();
  return models;
}

Result<NongemmModel> find_nongemm_model(std::string_view name, int64_t tokens) {
  const auto& known = nongemm_models();
  const auto found = std::ranges::find(known, name, &NongemmModel::name);
  if (found != known.end()) return *found;
  NongemmModel own;
  own.name = std::string(name);
  own.title = own.name;
  if (model::is_python_function(name)) {
    own.recipe = Json::object().set("name", own.name).set("function", own.name);
    return own;
  }
  if (model::is_onnx_name(name)) {
    // What it says of itself is read here, else the runner would complain of it at each setting.
    HEADROOM_ASSIGN(const model::OnnxModel onnx, model::read_onnx(own.name));
    HEADROOM_ASSIGN(Json shapes, onnx_shapes(onnx, tokens));
    own.is_file = true;
    own.recipe =
        Json::object().set("name", own.name).set("onnx", own.name).set("shapes", std::move(shapes));
    return own;
  }
  auto resolved = model::resolve_model(name);
  if (!resolved) {
    Error error = std::move(resolved).error();
    std::vector<std::string_view> names;
    for (const NongemmModel& model : known) names.push_back(model.name);
    const std::string_view nearest = nearest_word(name, names);
    if (!nearest.empty()) error.hint = "did you mean " + std::string(nearest) + "? " + error.hint;
    return error;
  }
  own.name = resolved->name;
  own.title = own.name;
  own.recipe = Json::object()
                   .set("name", own.name)
                   .set("config", resolved->config)
                   .set("inputs", inputs_for(resolved->config, tokens));
  return own;
}

}  // namespace headroom::bench
