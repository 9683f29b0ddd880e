#include "model/onnx_dimensions.h"

#include <algorithm>
#include <charconv>

#include "base/units.h"
#include "model/onnx_call.h"
#include "operator/impossible.h"
#include "text/ascii.h"

namespace headroom::model {
namespace {

using op::Impossible;

constexpr size_t kShownName = 80;
constexpr size_t kMostParts = 8;  // of a sum

bool says(const std::string& name, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_all = error == std::errc() && end == text.data() + text.size();
  return is_all && number >= 0 && number <= kMostElements ? std::optional(number) : std::nullopt;
}

}  // namespace

OpenDimensions::OpenDimensions(const OnnxModel& model, const OnnxSetting& setting)
    : setting_(setting) {
  for (const OnnxDeclared& input : model.inputs) {
    for (size_t i = 0; i < input.dimensions.size(); ++i) {
      if (input.dimensions[i].name.empty()) continue;
      const auto [found, is_new] = places_.try_emplace(input.dimensions[i].name);
      if (is_new) names_.push_back(input.dimensions[i].name);
      const Places here = places_at(i, input.dimensions.size());
      found->second.is_ever_second |= here.is_ever_second;
      found->second.is_ever_later |= here.is_ever_later;
    }
  }
}

OpenDimensions::Places OpenDimensions::places_at(size_t place, size_t rank) {
  const bool is_second = place == 1 && rank <= 3;
  return {is_second, place > 0 && !is_second};
}

OpenDimensions::Role OpenDimensions::role_of(const std::string& name, std::optional<size_t> place,
                                             size_t rank) const {
  const std::string word = text::lower(name);
  if (says(word, {"past"})) return Role::past;
  if (says(word, {"batch"})) return Role::batch;
  if (says(word, {"seq", "len", "token"})) return Role::sequence;
  Places places = place ? places_at(*place, rank) : Places{};
  if (const auto found = places_.find(name); !name.empty() && found != places_.end()) {
    places = found->second;
  }
  if (places.is_ever_second) return Role::sequence;
  return places.is_ever_later || (!place && !places_.contains(name)) ? Role::other : Role::batch;
}

OnnxOpenSize OpenDimensions::keep(OnnxOpenSize open) {
  if (known_.try_emplace(open.name, open).second) taken_.push_back(open);
  return open;
}

// Its parts are taken first, so that they are told first.
std::optional<OnnxOpenSize> OpenDimensions::sum_of(const std::string& name) {
  if (name.find('+') == std::string::npos) return std::nullopt;
  OnnxOpenSize sum{name, 0, Role::sum};
  std::string_view rest = name;
  for (size_t parts = 0; parts < kMostParts; ++parts) {
    const size_t plus = rest.find('+');
    const std::string_view part = text::trim(rest.substr(0, plus));
    if (part.empty()) return std::nullopt;
    const auto number = number_in(part);
    const auto total =
        checked_add(sum.size, number ? *number : of_name(std::string(part), std::nullopt, 0).size);
    if (!total) return std::nullopt;
    sum.size = *total;
    if (plus == std::string_view::npos) return sum;
    rest.remove_prefix(plus + 1);
  }
  return std::nullopt;
}

OnnxOpenSize OpenDimensions::of_name(const std::string& name, std::optional<size_t> place,
                                     size_t rank) {
  if (const auto known = known_.find(name); known != known_.end()) return known->second;
  if (const auto given = setting_.dimensions.find(name); given != setting_.dimensions.end()) {
    return keep({name, given->second, role_of(name, place, rank), true});
  }
  if (const auto sum = sum_of(name)) return keep(*sum);
  OnnxOpenSize open{name, 0, role_of(name, place, rank)};
  if (open.role == Role::batch) open.size = setting_.batch;
  if (open.role == Role::sequence) open.size = setting_.sequence;
  if (open.role == Role::other) {
    throw Impossible{"leaves its dimension '" + name.substr(0, kShownName) +
                         "' open, and nothing says how large it is",
                     "--dim " + to_be_given(name)};
  }
  return keep(open);
}

// This one, and all others of the inputs that are not known either: "height=N,width=N".
std::string OpenDimensions::to_be_given(const std::string& name) const {
  constexpr size_t kMostWords = 200;
  std::string words = name.substr(0, kShownName) + "=N";
  for (const std::string_view other : names_) {
    const std::string one(other);
    const bool is_asked = one != name && !setting_.dimensions.contains(one) &&
                          one.find('+') == std::string::npos &&
                          role_of(one, std::nullopt, 0) == Role::other;
    if (is_asked && words.size() < kMostWords) words += "," + one.substr(0, kShownName) + "=N";
  }
  return words;
}

int64_t OpenDimensions::size_of(const OnnxDimension& dimension, size_t place, size_t rank,
                                const std::string& of) {
  if (dimension.size && *dimension.size > 0) return *dimension.size;
  if (dimension.size && *dimension.size == 0 && dimension.name.empty()) return 0;
  if (!dimension.name.empty()) return of_name(dimension.name, place, rank).size;
  // Without a name: by that of what it is a dimension of, as --dim takes it.
  const std::string name = of.substr(0, kShownName) + "." + std::to_string(place);
  if (const auto known = known_.find(name); known != known_.end()) return known->second.size;
  if (const auto given = setting_.dimensions.find(name); given != setting_.dimensions.end()) {
    return keep({name, given->second, role_of("", place, rank), true}).size;
  }
  OnnxOpenSize open{name, 0, role_of("", place, rank)};
  if (open.role == Role::other) return of_name(name, place, rank).size;  // throws
  open.size = open.role == Role::batch ? setting_.batch : setting_.sequence;
  return keep(open).size;
}

}  // namespace headroom::model
