#include "engines/setting_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "base/suggest.h"
#include "text/parse_number.h"

namespace headroom::engines {

namespace {

using text::Json;
using text::JsonView;

constexpr int64_t kMostCount = 1'000'000'000;
constexpr size_t kMostNames = 1000;

// "true", "True" or "TRUE".
bool is_word(std::string_view said, std::string_view word) {
  return said.size() == word.size() && std::ranges::equal(said, word, [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) == b;
         });
}

// YAML 1.1's words, too, which PyYAML takes; none of what is neither.
std::optional<bool> truth_of(std::string_view said) {
  constexpr std::array<std::pair<const char*, bool>, 6> kWords{{{"true", true},
                                                                {"false", false},
                                                                {"yes", true},
                                                                {"no", false},
                                                                {"on", true},
                                                                {"off", false}}};
  for (const auto& [word, is_so] : kWords) {
    if (is_word(said, word)) return is_so;
  }
  return std::nullopt;
}

// Letters that one has and the other has not, as often as they have them.
int letters_apart(std::string_view a, std::string_view b) {
  std::array<int, 256> counts{};
  for (const char letter : a) ++counts[static_cast<unsigned char>(letter)];
  for (const char letter : b) --counts[static_cast<unsigned char>(letter)];
  int apart = 0;
  for (const int count : counts) apart += std::abs(count);
  return apart;
}

}  // namespace

std::vector<SettingValues::Misspelt> SettingValues::misspelt() const {
  constexpr int kLettersMost = 2;
  const std::vector<std::string_view> known(asked_.begin(), asked_.end());
  std::vector<Misspelt> found;
  if (!view_.json().is_object()) return found;
  for (const auto& [name, _] : view_.json().members()) {
    if (asked_.contains(name)) continue;
    const std::string_view meant = nearest_word(name, known);
    const bool is_near = !meant.empty() && letters_apart(name, meant) <= kLettersMost;
    if (is_near && find(meant) == nullptr) found.push_back({name, std::string(meant)});
  }
  return found;
}

const Json* SettingValues::find(std::string_view key) const {
  asked_.emplace(key);
  const Json* value = view_.json().find(key);
  const bool is_said = value != nullptr && !value->is_null() && !(*value == Json("None"));
  return is_said ? value : nullptr;
}

Result<std::optional<bool>> SettingValues::truth(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_string()) return view_.optional_bool(key);
  if (const auto said = truth_of(value->as_string())) return said;
  return view_.error_at(key, "is neither true nor false", "true or false");
}

Result<std::optional<double>> SettingValues::number(std::string_view key, double most) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_string()) return view_.optional_double(key, 0, most);
  const auto parsed = text::parse_number<double>(value->as_string());
  if (!parsed || !(*parsed >= 0) || !(*parsed <= most)) return no_number(key);
  return parsed;
}

Result<std::optional<int64_t>> SettingValues::count(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (!value->is_string()) return view_.optional_int(key, 1, kMostCount);
  const auto parsed = text::parse_number<int64_t>(value->as_string());
  if (!parsed || *parsed < 1 || *parsed > kMostCount) return no_number(key);
  return parsed;
}

Result<std::optional<std::string>> SettingValues::words(std::string_view key) const {
  if (find(key) == nullptr) return std::optional<std::string>();
  return view_.optional_string(key);
}

Result<std::vector<std::string>> SettingValues::names(std::string_view key) const {
  std::vector<std::string> names;
  const Json* value = find(key);
  if (value == nullptr) return names;
  if (value->is_string()) return std::vector<std::string>{value->as_string()};
  HEADROOM_ASSIGN(const auto items, view_.get_array(key, kMostNames));
  for (const JsonView& item : items) {
    HEADROOM_ASSIGN(std::string name, item.to_string());
    names.push_back(std::move(name));
  }
  return names;
}

bool SettingValues::is_on(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return false;
  if (value->is_string()) {
    return !value->as_string().empty() && truth_of(value->as_string()).value_or(true);
  }
  const bool is_zero = value->is_numeric() && value->as_double() == 0;
  const bool is_empty = *value == Json::object() || *value == Json::array();
  return !(*value == Json(false)) && !is_zero && !is_empty;
}

Result<void> SettingValues::refuse_if_on(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) {
    if (is_on(key)) return not_modelled(key, "leave it out, where the run can do without");
  }
  return {};
}

Error SettingValues::not_modelled(std::string_view key, std::string hint) const {
  return view_.error_at(key, "is not modelled", std::move(hint));
}

Error SettingValues::no_number(std::string_view key) const {
  return view_.error_at(key, "is no number that it takes",
                        view_.json().find(key)->as_string().empty()
                            ? "a script that works it out is not run: write the number"
                            : "");
}

}  // namespace headroom::engines
