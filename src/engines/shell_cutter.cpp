#include "engines/shell_cutter.h"

#include <algorithm>
#include <utility>

namespace headroom::engines {

namespace {

bool is_of_name(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_quote(char c) { return c == '"' || c == '\''; }

bool ends_word(char c) { return is_blank(c) || is_quote(c) || c == '\\' || c == ';'; }

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

bool is_shell_name(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, is_of_name);
}

void ShellCutter::take(char c) {
  if (c == '\n') in_comment_ = false;
  if (in_comment_) return;
  if (braces_ > 0 && c != '\n') return take_within(c);
  const bool is_of_line = c == '\n' || c == '\r';  // a backslash before it goes on with the line
  const bool is_escaped = std::exchange(is_escaped_, false);
  if (is_escaped && !is_of_line) note_tear();
  if (c == '#' && word_.empty() && !is_touching_ && !is_just_open_ && !is_escaped) {
    in_comment_ = true;
  } else if (opens_value(c, is_escaped)) {
    quote_ = c;
    quoted_from_ = count();
    value_at_ = word_.size();
    holds_arguments_ = is_shell_name(std::string_view(word_).substr(0, value_at_ - 1));
  } else if (ends_word(c) || is_bracket_between(c)) {
    cut(c, is_escaped);
  } else {
    add(c);
  }
  if (c == '\\') is_escaped_ = !is_escaped && quote_ != '\'';
  if (c == '\r') is_escaped_ = is_escaped;
}

CutScript ShellCutter::finish() {
  end(false);
  return std::move(script_);
}

bool ShellCutter::opens_value(char c, bool is_escaped) const {
  return is_quote(c) && quote_ == 0 && !is_escaped && word_.ends_with('=');
}

void ShellCutter::add(char c) {
  if (word_.empty() && is_touching_) note_tear();
  is_touching_ = false;
  is_just_open_ = false;
  if (c == '{' && word_.ends_with('$')) ++braces_;
  is_torn_ = is_torn_ || is_control(c);
  word_ += is_control(c) ? '?' : c;  // a terminal is not to obey what a file says
}

void ShellCutter::take_within(char c) {
  if (c == '}') --braces_;
  if (is_quote(c)) return;
  is_torn_ = is_torn_ || is_control(c);
  word_ += is_control(c) ? '?' : c;
}

// Between what was cut off last and what comes.
void ShellCutter::note_tear() {
  is_torn_ = true;
  if (is_touching_ && !script_.words.empty()) script_.words.back().is_torn = true;
}

// Of an array, NAME=(one two), but not of a layout, E|(tt|)*6L.
bool ShellCutter::is_bracket_between(char c) {
  if (c == '(') {
    if (word_.empty() || word_.ends_with('=')) return true;
    ++brackets_;
  } else if (c == ')') {
    if (brackets_ == 0) return true;
    --brackets_;
  }
  return false;
}

// At what ends a word.
void ShellCutter::cut(char c, bool is_escaped) {
  const bool is_closing = quote_ != 0 && c == quote_ && !is_escaped;
  const bool was_word = !word_.empty();
  if (quote_ != 0 && is_blank(c)) has_blank_ = true;
  if (value_at_ > 0 && (!is_closing || word_.compare(value_at_, 2, "--") == 0)) split_value();
  end(is_closing);
  if (is_closing) close_quotation();
  const bool is_inner = quote_ != 0;
  if (ends_list(c, is_escaped)) {
    script_.ends.push_back(count());
    if (c == '\n' || c == ';') script_.commands.push_back(count());
  }
  is_just_open_ = !is_inner && quote_ != 0;
  // A blank ends what a shell takes as a word, and so does what is no letter outside quotations.
  const bool goes_on = is_quote(c) || c == '\\' || (is_inner && !is_blank(c)) || is_escaped;
  is_touching_ = goes_on && (was_word || is_touching_ || is_closing);
  if (!goes_on) is_torn_ = false;
  if (is_inner && !is_blank(c) && !is_quote(c) && c != '\\') is_touching_ = is_torn_ = true;
}

// NAME="one two", NAME="--argument": words behind NAME=.
void ShellCutter::split_value() {
  std::string rest = word_.substr(value_at_);
  word_.resize(value_at_);
  script_.words.push_back({std::move(word_), false, is_torn_, false, 0});
  word_ = std::move(rest);
  value_at_ = 0;
  if (holds_arguments_) given_to_ = count();
}

void ShellCutter::end(bool is_closing) {
  while (word_.ends_with(',')) word_.pop_back();
  if (!word_.empty()) {
    holds_arguments_ = holds_arguments_ || word_.starts_with("--");
    const bool is_of_phrase = quote_ != 0 && has_blank_ && !holds_arguments_;
    const bool is_quoted = is_closing && count() == quoted_from_ && !has_blank_;
    script_.words.push_back({std::move(word_), is_quoted, is_torn_, is_of_phrase, 0});
    is_torn_ = false;
  }
  word_.clear();
  value_at_ = 0;
  braces_ = 0;
  brackets_ = 0;
}

// Before its mark is forgotten.
void ShellCutter::close_quotation() {
  if (given_to_ > 0) {
    script_.words[given_to_ - 1].list = count() - given_to_;
  } else if (count() == quoted_from_) {  // "", or what was lost of it
    script_.words.push_back({"", true, !is_just_open_ || is_touching_, false, 0});
  }
  given_to_ = 0;
}

bool ShellCutter::ends_list(char c, bool is_escaped) {
  if (is_quote(c)) {
    if (is_escaped || (quote_ != 0 && quote_ != c)) return false;
    const bool is_closed = quote_ == c;
    quote_ = is_closed ? '\0' : c;
    quoted_from_ = count();
    holds_arguments_ = false;
    return is_closed && std::exchange(has_blank_, false);
  }
  if (quote_ != 0) return false;
  if (c == '(' && arrays_++ == 0) array_at_ = count();
  if (c == ')' && arrays_ > 0 && --arrays_ == 0 && array_at_ > 0) {
    ShellWord& given = script_.words[array_at_ - 1];
    if (given.text.ends_with('=')) given.list = count() - array_at_;
  }
  return c == ')' || c == ';' || (c == '\n' && !is_escaped && arrays_ == 0);
}

}  // namespace headroom::engines
