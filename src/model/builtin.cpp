#include "model/builtin.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/suggest.h"
#include "model/onnx_file.h"
#include "text/ascii.h"
#include "text/utf8.h"

namespace headroom::embedded {
extern const std::string_view kModelsJson;
}

namespace headroom::model {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxName = 4096;
constexpr int64_t kMaxParameters = int64_t{1} << 50;
constexpr Bytes kRevisionLimit{256};

std::string_view short_name(std::string_view id) { return id.substr(id.find('/') + 1); }

std::string show(std::string_view name) {
  return "'" + text::elide(text::printable(name.substr(0, 400)), 120) + "'";
}

Error usage(std::string message, std::string hint) {
  return Error{ErrorCode::usage, std::move(message), {}, std::move(hint)};
}

// An entry is {"id", "parameters", "config"}; with "like" (the id of an entry before it) its
// configuration is that one's, with the members of its own "config" put over it.
Result<BuiltinModel> read_entry(const text::JsonView& view, const std::vector<BuiltinModel>& all) {
  BuiltinModel model;
  HEADROOM_ASSIGN(model.id, view.get_string("id"));
  HEADROOM_ASSIGN(model.parameters, view.optional_int("parameters", 1, kMaxParameters));
  model.config = text::Json::object();
  HEADROOM_ASSIGN(const auto like, view.optional_string("like"));
  if (like) {
    const auto found = std::ranges::find(all, *like, &BuiltinModel::id);
    if (found == all.end()) return view.error_at("like", "no entry before this is " + *like);
    model.config = found->config;
    if (view.json().find("parameters") == nullptr) model.parameters = found->parameters;
  }
  HEADROOM_ASSIGN(const auto config, view.optional_object("config"));
  if (config) {
    HEADROOM_ASSIGN(const auto members, config->get_members());
    for (const auto& [key, value] : members) model.config.set(key, value.json());
  }
  return model;
}

Result<std::vector<BuiltinModel>> read_table(std::string_view json) {
  HEADROOM_ASSIGN(const text::Json root, text::parse_json(json, "built-in models.json"));
  const text::JsonView view(root, "built-in models.json");
  HEADROOM_ASSIGN(const auto entries, view.get_array("models"));
  std::vector<BuiltinModel> models;
  models.reserve(entries.size());
  for (const text::JsonView& entry : entries) {
    HEADROOM_ASSIGN(BuiltinModel model, read_entry(entry, models));
    models.push_back(std::move(model));
  }
  return models;
}

Error unknown(std::string_view name, std::span<const BuiltinModel> models) {
  const std::string wanted = text::lower(name);
  std::vector<std::string> spellings;
  for (const BuiltinModel& model : models) {
    spellings.push_back(text::lower(model.id));
    spellings.push_back(text::lower(short_name(model.id)));
  }
  const std::vector<std::string_view> candidates(spellings.begin(), spellings.end());
  const std::string_view nearest = nearest_word(wanted, candidates);
  const auto found = std::ranges::find(candidates, nearest);
  std::string hint = "`headroom models` lists the built-in ones; a path to a config.json will do";
  if (!nearest.empty() && found != candidates.end()) {
    const auto index = static_cast<size_t>(found - candidates.begin()) / 2;
    hint = "did you mean " + models[index].id + "? " + hint;
  }
  return usage("model " + show(name) + " is not known", std::move(hint));
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Where huggingface_hub keeps what it downloaded (its docs, "Environment variables").
std::string cache_folder() {
  if (std::string hub = environment("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/huggingface/hub";
  }
  const std::string home = environment("HOME");
  return home.empty() ? std::string() : home + "/.cache/huggingface/hub";
}

// ORG/NAME as the hub allows it, so that it can be a part of a path.
bool is_repository_id(std::string_view name) {
  const bool words = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  });
  return words && !name.empty() && name.size() <= 200 && name.front() != '/' &&
         name.back() != '/' && std::ranges::count(name, '/') <= 1 &&
         name.find("..") == std::string_view::npos && name.find("--") == std::string_view::npos;
}

// The snapshot that refs/main names; without it the last one by name. Empty: there is none.
std::string find_in_cache(std::string_view id) {
  const std::string cache = cache_folder();
  if (cache.empty() || !is_repository_id(id)) return {};
  std::string folder = cache + "/models--" + std::string(id);
  if (const size_t slash = folder.find('/', cache.size() + 1); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  std::error_code ignored;
  const Result<std::string> revision = read_file(folder + "/refs/main", kRevisionLimit);
  if (revision && is_repository_id(*revision) && revision->find('/') == std::string::npos) {
    std::string file = folder + "/snapshots/" + *revision + "/config.json";
    if (fs::is_regular_file(file, ignored)) return file;
  }
  std::vector<std::string> files;
  for (fs::directory_iterator it(folder + "/snapshots", ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string file = it->path().string() + "/config.json";
    std::error_code missing;
    if (fs::is_regular_file(file, missing)) files.push_back(file);
  }
  return files.empty() ? std::string() : *std::ranges::max_element(files);
}

Result<ResolvedModel> read_config_file(std::string name, ModelSource source, std::string file) {
  HEADROOM_ASSIGN(text::Json config, text::read_json_file(file));
  if (!config.is_object()) {
    return Error{ErrorCode::bad_input, "expected a JSON object with a \"model_type\"", file, {}};
  }
  return ResolvedModel{std::move(name), source, std::move(file), std::move(config)};
}

// What can only be meant as a path, whether or not there is such a file.
bool names_a_file(std::string_view name) {
  return name.ends_with(".json") || name.starts_with('/') || name.starts_with("./") ||
         name.starts_with("../") || std::ranges::count(name, '/') > 1;
}

}  // namespace

const std::vector<BuiltinModel>& builtin_models() {
  static const std::vector<BuiltinModel> kModels = [] {
    Result<std::vector<BuiltinModel>> models = read_table(embedded::kModelsJson);
    HEADROOM_CHECK(models.has_value(), models ? "" : models.error().to_string().c_str());
    return std::move(models).value();
  }();
  return kModels;
}

Result<const BuiltinModel*> find_model(std::string_view name,
                                       std::span<const BuiltinModel> models) {
  const std::string wanted = text::lower(name.substr(0, kMaxName));
  std::vector<const BuiltinModel*> found;
  for (const BuiltinModel& model : models) {
    if (text::lower(model.id) == wanted) return &model;
    if (text::lower(short_name(model.id)) == wanted) found.push_back(&model);
  }
  if (found.empty()) return unknown(name, models);
  const auto is_first = [&](const BuiltinModel* model) {
    return model->config == found.front()->config;
  };
  if (std::ranges::all_of(found, is_first)) return found.front();
  std::string names;
  for (const BuiltinModel* model : found) names += (names.empty() ? "" : ", ") + model->id;
  return usage("model " + show(name) + " is ambiguous", "it may be " + names);
}

Result<const BuiltinModel*> find_builtin(std::string_view name) {
  return find_model(name, builtin_models());
}

bool is_python_function(std::string_view name) {
  const size_t colon = name.rfind(':');
  return colon != std::string_view::npos && colon + 1 < name.size() &&
         name.substr(0, colon).ends_with(".py");
}

Result<ResolvedModel> resolve_model(std::string_view name) {
  if (name.empty()) return usage("no model is named", "`headroom models` lists the built-in ones");
  if (name.size() > kMaxName || name.find('\0') != std::string_view::npos) {
    return usage("model " + show(name) + " is not a name", "a name, or a path to a config.json");
  }
  if (is_python_function(name)) {
    return usage(
        show(name) + " is a Python function, which has no configuration",
        "it is traced by `headroom fit`, and by `headroom ops --model` with --phase prefill "
        "or train");
  }
  if (name.ends_with(".py")) {
    return usage(show(name) + " names no function of that file", "FILE.py:FUNCTION");
  }
  if (is_onnx_name(name)) {
    return Error{ErrorCode::unavailable, "an ONNX file holds one forward run, no configuration",
                 std::string(name),
                 "headroom ops --model predicts that run; else give the model's config.json"};
  }
  const Result<const BuiltinModel*> builtin = find_builtin(name);
  if (builtin) {
    const BuiltinModel& model = **builtin;
    return ResolvedModel{model.id, ModelSource::builtin, model.id + "/config.json", model.config};
  }
  const std::string path(name);
  std::error_code ignored;
  if (name == "-" || fs::is_regular_file(path, ignored)) {
    return read_config_file(path, ModelSource::file, path);
  }
  if (fs::is_directory(path, ignored)) {
    return read_config_file(path, ModelSource::file, (fs::path(path) / "config.json").string());
  }
  if (std::string file = find_in_cache(name); !file.empty()) {
    return read_config_file(path, ModelSource::cache, std::move(file));
  }
  if (names_a_file(name)) return read_config_file(path, ModelSource::file, path);
  return builtin.error();
}

}  // namespace headroom::model
