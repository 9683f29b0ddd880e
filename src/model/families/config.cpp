#include "model/families/config.h"

namespace headroom::model {

int64_t ConfigReader::size(Names names, std::optional<int64_t> otherwise, int64_t max) {
  for (const char* name : names) {
    if (json_.has(name)) return take(json_.get_int(name, 1, max), int64_t{1});
  }
  if (otherwise) return *otherwise;
  return take(json_.get_int(*names.begin(), 1, max), int64_t{1});
}

int64_t ConfigReader::count(const char* name, int64_t otherwise, int64_t min, int64_t max) {
  return take(json_.optional_int(name, min, max), std::optional<int64_t>()).value_or(otherwise);
}

bool ConfigReader::flag(const char* name, bool otherwise) {
  return take(json_.optional_bool(name), std::optional<bool>()).value_or(otherwise);
}

bool ConfigReader::is_null(const char* name) const {
  return json_.json().find(name) != nullptr && !json_.has(name);
}

double ConfigReader::number(const char* name, double otherwise, double min, double max) {
  return take(json_.optional_double(name, min, max), std::optional<double>()).value_or(otherwise);
}

double ConfigReader::dropout(const char* name, double otherwise, const BuildOptions& options) {
  const double probability = number(name, otherwise, 0, 1);
  return options.training ? probability : 0;
}

Activation ConfigReader::activation(const char* name, Activation otherwise) {
  return take(read_activation(json_, name, otherwise), otherwise);
}

void ConfigReader::require_positions(const BuildOptions& options, int64_t positions) {
  const int64_t tokens = options.past + options.sequence;
  if (tokens <= positions || error_) return;
  const std::string most = std::to_string(positions);
  error_ = Error{ErrorCode::usage,
                 "a sequence of " + std::to_string(tokens) + " tokens, and the model has " + most +
                     " positions",
                 {},
                 "take " + most + " tokens or less"};
}

void ConfigReader::require(bool condition, const char* name, const std::string& message) {
  if (!condition && !error_) error_ = json_.error_at(name, message);
}

int64_t read_classes(ConfigReader& in, const text::JsonView& json) {
  const auto labels = json.optional_object("id2label");
  in.require(labels.has_value(), "id2label", "expected an object");
  const int64_t named =
      labels && *labels ? static_cast<int64_t>((*labels)->json().members().size()) : int64_t{2};
  return in.size({"num_labels"}, named);
}

}  // namespace headroom::model
