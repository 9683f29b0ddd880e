// The arguments of a command in a shell script, or in YAML that maps them, without running
// anything.
//
// Words are what blanks, quotes and the brackets of arrays leave; "--name value", "--name=value"
// and
// "--name: value" are arguments, and NAME=value gives a name. $NAME, ${NAME} and ${NAME:-else} are
// put in, through other names, too; what needs more of a shell has no value. Branches of `if` and
// `case` are all read: what is said twice, differently, is noted, and the last one counts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::engines {

class ShellWords {
 public:
  // The Error is about more words than a script has.
  static Result<ShellWords> read(std::string_view content, const std::string& file);

  // As it is written, "" for a switch; nothing where it is not there.
  [[nodiscard]] std::optional<std::string> written(std::string_view argument) const;
  // What stands behind its value until the next argument, as it is written; nothing where nothing
  // does. Of the last one, where it is there twice.
  [[nodiscard]] std::optional<std::string> more_of(std::string_view argument) const;
  // With names put in; nothing where that is not possible.
  [[nodiscard]] std::optional<std::string> resolved(const std::string& value);

  [[nodiscard]] std::vector<std::string> arguments() const;
  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
  // "--num-layers (32, then 16)": of arguments, and of names that were put in.
  [[nodiscard]] std::vector<std::string> contradictions() const;

 private:
  using Values = std::vector<std::string>;  // as they came, each once

  void take_names();
  // `ends`: so many words are before the end of each list of words.
  void take_arguments(const std::vector<size_t>& ends);
  std::optional<std::string> resolved(const std::string& value, std::vector<std::string>& within);

  std::vector<std::string> words_;
  std::map<std::string, Values, std::less<>> names_;
  std::map<std::string, Values, std::less<>> arguments_;
  std::map<std::string, std::string, std::less<>> more_;  // of arguments, behind their values
  std::vector<std::string> put_in_;                       // names
};

// A word as a POSIX shell takes it, quoted where it must be.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace headroom::engines
