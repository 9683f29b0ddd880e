#include "step/transform/freeze.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace headroom::step {

namespace {

std::vector<std::string_view> components(std::string_view name) {
  std::vector<std::string_view> list;
  while (true) {
    const size_t dot = name.find('.');
    list.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return list;
    name.remove_prefix(dot + 1);
  }
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < 0) return std::nullopt;
  return value;
}

bool matches(std::string_view wanted, std::string_view component) {
  if (wanted == component) return true;
  const size_t dash = wanted.find('-');
  if (dash == std::string_view::npos) return false;
  const auto low = number(wanted.substr(0, dash));
  const auto high = number(wanted.substr(dash + 1));
  const auto value = number(component);
  return low && high && value && *low <= *value && *value <= *high;
}

Error refuse(std::string message) {
  return {ErrorCode::usage, std::move(message), "--freeze",
          "parts of parameter names, such as embed_tokens or layers.0-15"};
}

}  // namespace

bool names_part(const std::string& part, const std::string& parameter) {
  const auto wanted = components(part);
  const auto name = components(parameter);
  return std::ranges::search(name, wanted, [](std::string_view component, std::string_view word) {
           return matches(word, component);
         }).begin() != name.end();
}

Result<model::Graph> apply_freeze(model::Graph graph, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    bool found = false;
    for (model::Parameter& parameter : graph.parameters) {
      if (!names_part(part, parameter.name)) continue;
      found = true;
      // A tied parameter is its first name's, under whichever it is frozen.
      if (parameter.tied_to) graph.parameters[*parameter.tied_to].trainable = false;
      parameter.trainable = false;
    }
    if (!found) return refuse("no parameter of the model is in '" + part + "'");
  }
  const bool trains = std::ranges::any_of(
      graph.parameters, [](const model::Parameter& p) { return p.trainable && !p.tied_to; });
  if (!trains) return refuse("nothing is left to train");
  return graph;
}

}  // namespace headroom::step
