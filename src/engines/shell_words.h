// The arguments of a command in a shell script, or in YAML that maps them, without running
// anything.
//
// Words are what blanks, quotes and the brackets of arrays leave (shell_cutter.h); "--name value",
// "--name=value" and "--name: value" are arguments, and NAME=value, NAME="one two" and NAME=(one
// two) give a name. $NAME, ${NAME}, ${NAME[@]} and ${NAME:-else} are put in, through other names,
// too; what needs more of a shell has no value. Branches of `if` and
// `case` are all read: what is said twice, differently, is noted, and the last one counts.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engines/shell_cutter.h"

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
  // Its value's words, of the last one, as they stand there: all until the next argument.
  [[nodiscard]] std::vector<ShellWord> words_of(std::string_view argument) const;
  // Whether it is "--name: value", of YAML.
  [[nodiscard]] bool is_mapped(std::string_view argument) const;
  // With names put in; nothing where that is not possible.
  [[nodiscard]] std::optional<std::string> resolved(const std::string& value);

  [[nodiscard]] std::vector<std::string> arguments() const;
  [[nodiscard]] const std::vector<ShellWord>& words() const { return cut_.words; }
  // Arguments that stand before such a program in its command, or in a list that does: its
  // launcher's.
  [[nodiscard]] std::set<std::string, std::less<>> before(std::string_view program) const;
  // "--num-layers (32, then 16)": of arguments, and of names that were put in.
  [[nodiscard]] std::vector<std::string> contradictions() const;

 private:
  using Values = std::vector<std::string>;  // as they came, each once
  struct Place {                            // of an argument, and the end of what stands behind
    size_t at = 0, end = 0;
  };

  void take_names();
  void take_arguments();
  std::optional<std::string> resolved(const std::string& value, std::vector<std::string>& within);
  [[nodiscard]] bool is_program(const ShellWord& word, std::string_view program) const;

  CutScript cut_;
  std::map<std::string, Values, std::less<>> names_;
  std::map<std::string, Values, std::less<>> arguments_;
  std::map<std::string, Place, std::less<>> places_;  // of the last one
  std::vector<std::string> put_in_;                   // names
};

// A word as a POSIX shell takes it, quoted where it must be.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace headroom::engines
