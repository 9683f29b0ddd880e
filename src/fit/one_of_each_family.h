// For tests: a built-in model of every family.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/builtin.h"
#include "text/json.h"

namespace headroom::fit {

// The smallest model of each family.
inline std::vector<std::string> one_of_each_family() {
  std::map<std::string, const model::BuiltinModel*> smallest;
  for (const model::BuiltinModel& model : model::builtin_models()) {
    const auto type = text::JsonView(model.config, model.id).optional_string("model_type");
    if (!type || !*type) continue;
    const model::BuiltinModel*& best = smallest[**type];
    if (best == nullptr || model.parameters.value_or(0) < best->parameters.value_or(0)) {
      best = &model;
    }
  }
  std::vector<std::string> names;
  for (const auto& [type, model] : smallest) names.push_back(model->id);
  return names;
}

}  // namespace headroom::fit
