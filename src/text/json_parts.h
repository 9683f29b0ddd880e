// Parts of an answer in JSON: arrays from ranges of whatever they are about, and what may be
// absent.
#pragma once

#include <iterator>
#include <optional>
#include <utility>

#include "text/json.h"

namespace headroom::text {

// Of a range of what a Json can be made of, strings above all.
template <typename Range>
Json json_array(const Range& values) {
  return Json::array(Json::Array(std::begin(values), std::end(values)));
}

// Of a range of other things, each made into a Json by `item`.
template <typename Range, typename Item>
Json json_array(const Range& values, const Item& item) {
  Json::Array items;
  items.reserve(std::size(values));
  for (const auto& value : values) items.push_back(item(value));
  return Json::array(std::move(items));
}

// null where there is no value.
template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
inline Json or_null(const std::optional<double>& value, double scale) {
  return value ? Json(*value * scale) : Json(nullptr);
}

}  // namespace headroom::text
