#include "report/models.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include "model/hidden_size.h"
#include "model/load.h"
#include "report/fit/words.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using model::BuiltinModel;
using model::Family;
using text::Align;
using text::Json;
using text::Style;
using text::Table;

// By the names that families have for it; the first that is there counts.
std::optional<int64_t> first_of(const Json& config, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Json* value = config.find(name);
    if (value != nullptr && value->is_integer()) return value->as_int();
  }
  // A model of text and more keeps the sizes of its language model one level down.
  const Json* inner = config.find("text_config");
  return inner != nullptr && inner->is_object() ? first_of(*inner, names) : std::nullopt;
}

std::optional<int64_t> hidden_in(const Json& config) {
  const auto size = model::hidden_size_of(text::JsonView(config, "config.json"));
  return size ? *size : std::nullopt;
}

struct Size {
  const char* key;  // in our JSON, and over the column
  std::optional<int64_t> (*of)(const Json& config);
};
constexpr std::array<Size, 4> kSizes{{
    {"layers",
     [](const Json& config) {
       return first_of(config, {"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
     }},
    {"hidden", hidden_in},
    {"heads",
     [](const Json& config) {
       return first_of(config, {"num_attention_heads", "n_head", "num_heads", "n_heads"});
     }},
    {"vocab",
     [](const Json& config) {
       return first_of(config, {"vocab_size", "padded_vocab_size"});
     }},
}};

std::string family_of(const BuiltinModel& model) {
  const Json* type = model.config.find("model_type");
  return type != nullptr && type->is_string() ? type->as_string() : "";
}

bool is_known(std::span<const Family> families, const std::string& name) {
  return std::ranges::any_of(families, [&](const Family& f) { return f.model_type == name; });
}

std::string words_of(const std::optional<int64_t>& size) {
  return size ? std::to_string(*size) : "";
}

std::string family_list(std::span<const Family> families) {
  std::string list;
  for (const Family& family : families) {
    list += (list.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return list;
}

// As published; else counted in the graph that the configuration makes, where a family knows it.
struct ParameterCount {
  std::optional<int64_t> count;
  const char* source = "published";
};
ParameterCount parameters_of(const BuiltinModel& model) {
  if (model.parameters) return {model.parameters};
  model::BuildOptions options;
  options.sequence = 16;  // no parameter depends on it
  const auto graph = model::build_graph({model.config, model.id}, options);
  if (!graph) return {};
  return {model::parameter_count(*graph, false), "counted"};
}

// The families whose step is another one than predicting the next token, a line each.
std::string other_tasks(std::span<const Family> families) {
  std::string lines;
  for (const Family& family : families) {
    if (family.task == model::Task::causal_lm) continue;
    lines +=
        std::string(family.model_type) + ": " + std::string(meaning_of_seq(family.task)) + "\n";
  }
  return lines;
}

}  // namespace

std::string models_text(std::span<const BuiltinModel> models, std::span<const Family> families,
                        const text::Terminal& terminal) {
  Table table({{"model", Align::left, true},
               {"family", Align::left, false},
               {"parameters", Align::right, false},
               {"layers", Align::right, false},
               {"hidden", Align::right, false},
               {"heads", Align::right, false},
               {"vocab", Align::right, false}});
  for (const BuiltinModel& model : models) {
    const ParameterCount parameters = parameters_of(model);
    std::vector<text::TableCell> cells{model.id, family_of(model),
                                       parameters.count ? count_words(*parameters.count) : ""};
    for (const Size& size : kSizes) cells.emplace_back(words_of(size.of(model.config)));
    table.row(std::move(cells));
  }
  return table.render(terminal) + "\nFamilies of any config.json: " + family_list(families) + "\n" +
         other_tasks(families);
}

std::string model_text(const BuiltinModel& model, std::span<const Family> families,
                       const text::Terminal& terminal) {
  const std::string family = family_of(model);
  std::string lines = text::printable(model.id + ": " + family);
  lines += is_known(families, family) ? "\n\n" : ", which cannot be modelled yet\n\n";
  Table table({{"", Align::left, false}, {"", Align::right, true}});
  if (const ParameterCount parameters = parameters_of(model); parameters.count) {
    table.row({"parameters, " + std::string(parameters.source), with_commas(*parameters.count)});
  }
  for (const Size& size : kSizes) {
    if (const auto value = size.of(model.config)) {
      table.row({size.key, std::to_string(*value)});
    }
  }
  return lines + table.render(terminal) + "\nconfig.json\n" + model.config.dump(2) + "\n";
}

Json models_json(std::span<const BuiltinModel> models, std::span<const Family> families) {
  Json list = Json::array();
  for (const BuiltinModel& model : models) {
    const std::string family = family_of(model);
    const ParameterCount parameters = parameters_of(model);
    Json json =
        Json::object()
            .set("id", model.id)
            .set("family", family)
            .set("can_be_modelled", is_known(families, family))
            .set("parameters", parameters.count ? Json(*parameters.count) : Json(nullptr))
            .set("parameters_source", parameters.count ? Json(parameters.source) : Json(nullptr));
    for (const Size& size : kSizes) {
      const auto value = size.of(model.config);
      json.set(size.key, value ? Json(*value) : Json(nullptr));
    }
    list.push_back(json.set("config", model.config));
  }
  Json names = Json::array();
  Json tasks = Json::object();
  for (const Family& family : families) {
    names.push_back(family.model_type);
    tasks.set(std::string(family.model_type), std::string(task_name(family.task)));
  }
  return Json::object()
      .set("schema", "headroom.models/1")
      .set("models", std::move(list))
      .set("families", std::move(names))
      .set("tasks", std::move(tasks));
}

}  // namespace headroom::report
