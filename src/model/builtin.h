// The models that Headroom knows by name, and finding a configuration by whatever a user calls one.
//
// The table (data/models.json) is inside the program: config.json's members that shape a model,
// under its Hugging Face id. It is parsed once, on first use (about 2 ms), and then only read, so
// any number of threads may ask. resolve_model() also looks at the file system and the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/json.h"

namespace headroom::model {

struct BuiltinModel {
  std::string id;                     // "mistralai/Mistral-7B-v0.1"
  text::Json config;                  // an object with a "model_type"
  std::optional<int64_t> parameters;  // as published, tied ones once; where we know it
};

// All of them, in the table's order: by family, small ones first.
[[nodiscard]] const std::vector<BuiltinModel>& builtin_models();

// Among `models`: by id, or by the part behind the slash where that names one (or copies of it);
// capitals do not matter. The Error of an unknown name proposes the nearest one, that of an
// ambiguous name lists what it may be.
Result<const BuiltinModel*> find_model(std::string_view name, std::span<const BuiltinModel> models);
Result<const BuiltinModel*> find_builtin(std::string_view name);

// Where a configuration came from.
enum class ModelSource : uint8_t { builtin, file, cache, traced };

struct ResolvedModel {
  std::string name;  // for people: the id, the path as given, or the id of the cache entry
  ModelSource source = ModelSource::builtin;
  std::string file;  // what errors about the configuration call it
  text::Json config;

  [[nodiscard]] text::JsonView view() const { return {config, file}; }
};

// What `name` means: a built-in name; a path to a config.json or to a folder that holds one; an
// entry of the local Hugging Face cache (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub).
// In this order; "./gpt2" is always a path. FILE.py:FUNCTION is an Error of kind usage, since
// configurations have nothing to do with it: ask is_python_function() first.
Result<ResolvedModel> resolve_model(std::string_view name);

// Whether `name` is FILE.py:FUNCTION, a module to be traced.
[[nodiscard]] bool is_python_function(std::string_view name);

}  // namespace headroom::model
