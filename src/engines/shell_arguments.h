// The arguments of a command in a script, with their values as what they are, and which of them
// were asked for. Errors name the argument and its value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engines/shell_words.h"

namespace headroom::engines {

// An argument that decides nothing here, to be handed on as it came.
struct OtherArgument {
  std::string name;  // without dashes
  // None are a switch's. Names that the script gives are put in; one that it takes from where it is
  // started stays, as "$NAME".
  std::vector<std::string> words;
  bool is_given = true;  // else its words need more of a shell, and are none
  bool operator==(const OtherArgument&) const = default;
};

class ShellArguments {
 public:
  ShellArguments(ShellWords script, std::string file);

  // With names put in; nothing where it is not there.
  Result<std::optional<std::string>> words(std::string_view name);
  // All of its words, with a blank between two.
  Result<std::optional<std::string>> list(std::string_view name);
  Result<std::optional<int64_t>> number(std::string_view name, int64_t least = 1);
  // What is no number is not known: "gpu", "1:4", a variable of the cluster's.
  std::optional<int64_t> number_if_any(std::string_view name);
  Result<void> take(std::string_view name, int64_t& to, int64_t least = 1);
  // From 0 to below 1.
  Result<void> take(std::string_view name, double& to);
  // A switch; in YAML it has a value.
  bool is_on(std::string_view name);
  // PYTORCH_ALLOC_CONF, by its older name too, where the script sets it; else empty.
  std::string allocator();
  // Of a name that was not asked for; nothing where YAML says false. REQUIRES: it is there.
  std::optional<OtherArgument> other(const std::string& name);

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const ShellWords& script() const { return script_; }
  [[nodiscard]] bool was_asked(const std::string& name) const;

 private:
  std::optional<std::vector<std::string>> handed_on(const ShellWord& word);

  ShellWords script_;
  std::string file_;
  std::vector<std::string> seen_;
  size_t put_in_ = 0;  // bytes of names' values, of what was handed on
};

}  // namespace headroom::engines
