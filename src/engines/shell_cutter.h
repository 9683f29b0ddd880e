// Cuts a shell script into words, and says how each of them stood there.
//
// A script is not run, and its quotations are not taken as a shell takes them: "--a 1 --b 2" in one
// may be the arguments of a command, and are words. What is lost by that is marked, so that nobody
// takes a part for the whole.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::engines {

// A name as a script's own and the environment's are.
[[nodiscard]] bool is_shell_name(std::string_view word);

struct ShellWord {
  std::string text;
  bool is_quoted = false;     // all of it, or all that stands behind '='; and nothing beside it
  bool is_torn = false;       // a part of what a shell takes as one word: "$ROOT"/last, a\ b
  bool is_of_phrase = false;  // of a quotation with blanks that holds no arguments: "my run"
  size_t list = 0;            // of NAME=: so many words behind it are what is given
};

struct CutScript {
  std::vector<ShellWord> words;
  // So many words are before the end of each list of words: of an array, a quotation or a line;
  std::vector<size_t> ends;
  std::vector<size_t> commands;  // and of a line alone.
};

// What ${...} holds stays in one word, and so do brackets within it.
class ShellCutter {
 public:
  void take(char c);
  [[nodiscard]] size_t count() const { return script_.words.size(); }
  // What was cut. Nothing is to be taken behind it.
  [[nodiscard]] CutScript finish();

 private:
  bool is_bracket_between(char c);
  bool opens_value(char c, bool is_escaped) const;
  void cut(char c, bool is_escaped);
  void take_within(char c);
  void add(char c);
  void note_tear();
  void split_value();
  void end(bool is_closing);
  void close_quotation();
  bool ends_list(char c, bool is_escaped);

  CutScript script_;
  std::string word_;
  bool in_comment_ = false;
  int braces_ = 0;
  int brackets_ = 0;
  int arrays_ = 0;
  size_t array_at_ = 0;        // the word that an array is given to
  bool is_escaped_ = false;    // by a backslash just before
  bool is_touching_ = false;   // what comes next stands right behind what was cut off
  bool is_torn_ = false;       // the word
  char quote_ = 0;             // that is open, and of it:
  size_t quoted_from_ = 0;     // so many words are before it
  bool is_just_open_ = false;  // nothing has come
  bool has_blank_ = false;
  bool holds_arguments_ = false;
  size_t value_at_ = 0;  // in the word; 0: it is none of NAME="value"
  size_t given_to_ = 0;  // the word NAME=, behind which its words come, and one more
};

}  // namespace headroom::engines
