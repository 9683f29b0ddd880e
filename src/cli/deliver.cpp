#include "cli/deliver.h"

#include <algorithm>
#include <vector>

#include "base/file.h"
#include "fit/question.h"

namespace headroom::cli {
namespace {

Result<void> write(const std::string& path, std::string_view content, const Console& console) {
  if (path == "-" || path.empty()) return console.answer(content);
  return write_file_atomic(path, content);
}

// Whether "true" behind this flag was typed, and not what a switch stands for.
bool takes_words(std::string_view name) {
  const auto flags = fit::question_flags();
  return std::any_of(flags.begin(), flags.end(), [&](const fit::QuestionFlag& flag) {
    return flag.name == name && !flag.value.empty();
  });
}

// In single quotes where a shell would do something with the word.
std::string quoted(const std::string& word) {
  const auto plain = [](char c) {
    const std::string_view harmless = "-_./:=,+@%";
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           harmless.find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quotes = "'";
  for (const char c : word) quotes += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quotes + "'";
}

}  // namespace

// One place cannot hold two answers.
Result<void> check_places(const Words& words, std::initializer_list<std::string_view> files) {
  const std::string html = words.value("html");
  const std::string output = words.value("output");
  std::vector<std::string> printed;  // the flags whose answers go to standard output
  for (const std::string_view flag : files) {
    if (words.value(flag) == "-") printed.push_back("--" + std::string(flag));
  }
  if (html == "-") printed.emplace_back("--html");
  if (output == "-") {
    printed.emplace_back("--output");
  } else if (words.has("json") && output.empty()) {
    printed.emplace_back("--json");
  }
  if (printed.size() > 1) {
    const bool is_answer = printed[1] == "--json" || printed[1] == "--output";
    return Error{ErrorCode::usage,
                 printed[0] + " and " + printed[1] + " both go to standard output", "",
                 "name a file for one of them: " + printed[0] + " FILE or " +
                     (is_answer ? "--output" : printed[1]) + " FILE"};
  }
  if (words.has("html") && html != "-" && html == output) {
    return Error{ErrorCode::usage, "the page and the other answer both go to " + html, "--output",
                 "name another file for one of them"};
  }
  std::vector<std::string_view> named(files);
  named.insert(named.end(), {"html", "output"});
  for (const std::string_view flag : named) {
    if (words.has(flag) && words.value(flag) != "-")
      HEADROOM_TRY(check_writable(words.value(flag)));
  }
  return {};
}

Result<void> deliver(const Forms& forms, const Words& words, const Console& console) {
  const std::string html = words.value("html");
  const std::string output = words.value("output");
  HEADROOM_TRY(check_places(words));
  if (words.has("html") && !forms.page) {
    return Error{ErrorCode::usage, "this answer has no page", "--html", "text, or --json"};
  }
  if (words.has("html")) {
    HEADROOM_TRY(write(html, report::render_page(forms.page()), console));
    if (html != "-") console.note("wrote " + html);
  }
  const bool to_file = !output.empty() && output != "-";
  if (html == "-" && !to_file) return {};
  if (words.has("json")) return write(output, forms.json().dump(2) + "\n", console);
  if (!forms.text) return {};
  return write(output, forms.text(to_file ? text::Terminal{} : console.out), console);
}

std::string command_line(std::string_view verb, const Words& words) {
  std::string line = "headroom " + std::string(verb);
  for (const std::string& operand : words.operands) line += " " + quoted(operand);
  for (const auto& [name, value] : words.flags) {
    line += " --" + name;
    if (value != "true" || takes_words(name)) line += " " + quoted(value);
  }
  return line;
}

}  // namespace headroom::cli
