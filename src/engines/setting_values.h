// Members of a setting as people write it: of JSON and YAML by their types, of a command as words
// ("8", "True"). What is null or None is not said.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/json.h"

namespace headroom::engines {

class SettingValues {
 public:
  explicit SettingValues(const text::JsonView& view) : view_(view) {}

  // The member, if it says something.
  [[nodiscard]] const text::Json* find(std::string_view key) const;
  // Each of these: nothing where nothing is said.
  [[nodiscard]] Result<std::optional<bool>> truth(std::string_view key) const;
  [[nodiscard]] Result<std::optional<double>> number(std::string_view key, double most) const;
  [[nodiscard]] Result<std::optional<int64_t>> count(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string>> words(std::string_view key) const;
  // A list, or one word.
  [[nodiscard]] Result<std::vector<std::string>> names(std::string_view key) const;

  // Whether it is said and is on; what is no truth is.
  [[nodiscard]] bool is_on(std::string_view key) const;
  // An Error at the first that is.
  [[nodiscard]] Result<void> refuse_if_on(std::initializer_list<const char*> keys) const;
  [[nodiscard]] Error not_modelled(std::string_view key, std::string hint = {}) const;

  [[nodiscard]] const text::JsonView& view() const { return view_; }

  // Members that nobody has asked for and that are a letter or two off one that somebody has, with
  // that one. To be asked last.
  struct Misspelt {
    std::string said;
    std::string meant;
  };
  [[nodiscard]] std::vector<Misspelt> misspelt() const;

 private:
  [[nodiscard]] Error no_number(std::string_view key) const;

  text::JsonView view_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace headroom::engines
