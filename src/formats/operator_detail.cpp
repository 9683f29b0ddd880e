#include "formats/operator_detail.h"

#include <algorithm>
#include <utility>

#include "text/json.h"

namespace headroom::formats {
namespace {

// "Tensor(float)" is float; "GenericList[Tensor(float),Tensor(float)]" too, where all are; what is
// no tensor is "Scalar".
std::string element_of(std::string_view type) {
  constexpr std::string_view kTensor = "Tensor(";
  std::string element;
  for (size_t at = type.find(kTensor); at != std::string_view::npos;
       at = type.find(kTensor, at + 1)) {
    const size_t begin = at + kTensor.size();
    const std::string one(type.substr(begin, type.find(')', begin) - begin));
    if (!element.empty() && element != one) return "Scalar";
    element = one;
  }
  return element.empty() ? "Scalar" : element;
}

// Where a string of Python ends, from its quote on; escapes that JSON lacks are written anew.
size_t copy_string(std::string_view text, size_t at, std::string& json) {
  const char quote = text[at++];
  std::string plain;
  while (at < text.size() && text[at] != quote) {
    if (text[at] == '\\' && at + 1 < text.size()) {
      ++at;
      const bool is_plain = text[at] == '\\' || text[at] == '\'' || text[at] == '"';
      if (!is_plain) plain += '\\';  // an escape that no name of a type has: kept as it stands
    }
    plain += text[at++];
  }
  json += text::Json(plain).dump();
  return at + 1;
}

}  // namespace

std::string operator_detail(std::string_view shapes_text, std::string_view types_text) {
  const Result<text::Json> shapes = text::parse_json(shapes_text, "shapes");
  const Result<text::Json> types = text::parse_json(types_text, "types");
  if (!shapes || !types || !shapes->is_array() || !types->is_array()) return "";
  if (shapes->size() != types->size() || shapes->size() == 0) return "";
  text::Json plain_shapes = text::Json::array();
  text::Json plain_types = text::Json::array();
  for (size_t i = 0; i < types->size(); ++i) {
    const text::Json& type = types->items()[i];
    if (!type.is_string()) return "";
    const std::string element = element_of(type.as_string());
    plain_types.push_back(element);
    plain_shapes.push_back(element == "Scalar" ? text::Json::array() : shapes->items()[i]);
  }
  return plain_shapes.dump() + " " + plain_types.dump();
}

std::string json_of_python(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"None", "null"}, {"True", "true"}, {"False", "false"}};
  std::string json;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\'' || text[at] == '"') {
      at = copy_string(text, at, json);
      continue;
    }
    const auto* const word =
        std::find_if(std::begin(kWords), std::end(kWords),
                     [&](const auto& one) { return text.substr(at).starts_with(one.first); });
    if (word != std::end(kWords)) {
      json += word->second;
      at += word->first.size();
    } else {
      json += text[at++];
    }
  }
  return json;
}

}  // namespace headroom::formats
