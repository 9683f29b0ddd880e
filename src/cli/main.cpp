// headroom VERB WHAT [flags]: finds the verb, reads its words, runs it, and turns what comes back
// into an exit code. The only place that ends the process.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/child.h"
#include "base/file.h"
#include "base/heap.h"
#include "base/version.h"
#include "cli/verb.h"

namespace headroom::cli {
namespace {

// A file that was being written is a temporary one beside its target, so nothing is left half done,
// and no helper goes on without us.
extern "C" void end_interrupted(int signal) {
  kill_children();
  // The line is a progress bar's, or the terminal's ^C.
  const std::string_view words = has_written() ? "\nheadroom: interrupted\n"
                                               : "\nheadroom: interrupted, no file was written\n";
  [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, words.data(), words.size());
  _exit(128 + signal);
}

Console console_for(bool no_color, bool quiet) {
  const auto choice = no_color ? text::ColourChoice::never : text::ColourChoice::automatic;
  return {text::probe_terminal(STDOUT_FILENO, choice), text::probe_terminal(STDERR_FILENO, choice),
          quiet};
}

// Its own words, and where it takes one the command behind them, which nobody reads.
Result<Words> words_of(const Verb& verb, const std::vector<std::string>& rest) {
  if (!verb.takes_command) return read_words(verb.flags, verb.most_operands, rest);
  const size_t ours = words_before_command(verb.flags, rest);
  const auto command = rest.begin() + static_cast<std::ptrdiff_t>(ours);
  std::vector<std::string> own(rest.begin(), command);
  if (!own.empty() && own.back() == "--") own.pop_back();
  HEADROOM_ASSIGN(Words words, read_words(verb.flags, verb.most_operands, own));
  words.command.assign(command, rest.end());
  return words;
}

Result<int> run_words(const Verb& verb, const std::vector<std::string>& rest) {
  HEADROOM_ASSIGN(const Words words, words_of(verb, rest));
  const Console console = console_for(words.has("no-color"), words.has("quiet"));
  if (words.has("help")) {
    Words help;
    help.operands.emplace_back(verb.name);
    return run_help(help, console);
  }
  for (const std::string& remark : words.remarks) console.note(remark);
  return verb.run(words, console);
}

Result<int> run_verb(const Verb& verb, const std::vector<std::string>& rest,
                     const Console& console) {
  Result<int> result = run_words(verb, rest);
  if (result || verb.failure_exit == 0) return result;
  console.complain(result.error());
  return verb.failure_exit;
}

Result<int> run(const std::vector<std::string>& arguments, const Console& console) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (first == "--version") {
    HEADROOM_TRY(console.answer("headroom " + std::string(version()) + "\n"));
    return kExitYes;
  }
  if (first == "--help" || first == "-h") return run_help({}, console);
  if (first.empty()) {
    return Error{ErrorCode::usage, "which question?", "",
                 "headroom fit MODEL, headroom study MODEL, or headroom help"};
  }
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (first == "help") {
    constexpr size_t kVerbAndMore = 8;  // "help bench decode" is in the help of bench
    HEADROOM_ASSIGN(const Words words, read_words({}, kVerbAndMore, rest));
    return run_help(words, console);
  }
  for (const Verb& verb : verbs()) {
    if (verb.name == first) return run_verb(verb, rest, console);
  }
  // Help's own complaint about a verb that it does not know.
  Words unknown;
  unknown.operands.push_back(first);
  return run_help(unknown, console);
}

int run_and_report(const std::vector<std::string>& arguments) {
  const Console console = console_for(false, false);
  const Result<int> result = run(arguments, console);
  if (result) return *result;
  console.complain(result.error());
  return exit_code_of(result.error().code);
}

}  // namespace
}  // namespace headroom::cli

int main(int argc, char** argv) {
  std::signal(SIGINT, headroom::cli::end_interrupted);
  std::signal(SIGTERM, headroom::cli::end_interrupted);
  headroom::keep_freed_memory();
  try {
    return headroom::cli::run_and_report({argv + 1, argv + argc});
  } catch (const std::bad_alloc&) {
    std::fputs("headroom: error: out of memory\n", stderr);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "headroom: a bug of ours: %s\n", exception.what());
  }
  return headroom::cli::kExitBug;
}
