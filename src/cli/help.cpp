#include <algorithm>

#include "base/suggest.h"
#include "base/version.h"
#include "cli/verb.h"
#include "text/paragraph.h"
#include "text/utf8.h"

namespace headroom::cli {
namespace {

// A name at the left, its explanation in a column of its own, wrapped to the terminal; where the
// name is too long for its column the explanation begins on the next line.
std::string entry(std::string_view name, std::string_view what, int column, int columns) {
  std::string lines = "  " + std::string(name);
  const auto used = static_cast<int>(lines.size());
  if (used + 2 > column) {
    lines += "\n" + std::string(static_cast<size_t>(column), ' ');
  } else {
    lines.append(static_cast<size_t>(column - used), ' ');
  }
  return lines + text::paragraph(what, column, columns) + "\n";
}

std::string heading(std::string_view words, const Console& console) {
  return "\n" + text::paint(words, text::Style::bold, console.out.colour) + "\n";
}

int width_of(const Console& console) { return text::paragraph_columns(console.out.columns); }

std::string examples(const std::vector<Example>& list) {
  std::string lines;
  for (const Example& example : list) {
    lines += "  " + std::string(example.command) + "\n      " + std::string(example.what) + "\n";
  }
  return lines;
}

std::string verb_help(const Verb& verb, const Console& console) {
  std::string lines =
      "headroom " + std::string(verb.name) + ": " + std::string(verb.summary) + "\n";
  lines += heading("Examples", console) + examples(verb.examples);
  lines += heading("Usage", console) + "  headroom " + std::string(verb.name);
  if (!verb.operands.empty()) lines += " " + std::string(verb.operands);
  lines += (verb.takes_command ? "\n" : " [flags]\n") + heading("Flags", console);
  const int columns = width_of(console);
  for (const Flag& flag : verb.flags) {
    std::string name = flag.letter == 0 ? "" : std::string("-") + flag.letter + ", ";
    name += "--" + std::string(flag.name);
    if (!flag.value.empty()) name += " " + std::string(flag.value);
    lines += entry(name, flag.help, columns < 60 ? 6 : 28, columns);
  }
  if (!verb.terms.empty()) lines += heading("Words", console);
  for (const Term& term : verb.terms) {
    lines += entry(term.word, term.meaning, columns < 60 ? 6 : 28, columns);
  }
  return lines;
}

std::string whole_help(const Console& console) {
  const int columns = width_of(console);
  std::string lines = "Headroom tells what your GPUs can still hold, before you run.\n";
  lines += heading("Examples", console);
  for (const Verb& verb : verbs()) lines += examples({verb.examples.front()});
  lines += heading("Verbs", console);
  for (const Verb& verb : verbs()) lines += entry(verb.name, verb.summary, 12, columns);
  lines += entry("help", "help VERB: examples and flags of one verb", 12, columns);
  lines += heading("Exit codes", console);
  lines +=
      "  0 yes, or done         3 bad input               70 a bug of ours\n"
      "  1 not a plain yes      4 not available here      130, 143 interrupted\n"
      "  2 usage                5 partial result\n"
      "  headroom run gives its command's exit code, and 125 to 127 for failures of its own\n";
  return lines;
}

}  // namespace

Result<int> run_help(const Words& words, const Console& console) {
  if (words.operands.empty()) {
    HEADROOM_TRY(console.answer(whole_help(console)));
    return kExitYes;
  }
  std::vector<std::string_view> names;
  for (const Verb& verb : verbs()) {
    names.push_back(verb.name);
    if (verb.name != words.operands.front()) continue;
    HEADROOM_TRY(console.answer(verb_help(verb, console)));
    return kExitYes;
  }
  const std::string_view nearest = nearest_word(words.operands.front(), names);
  return Error{
      ErrorCode::usage, "there is no verb '" + words.operands.front().substr(0, 80) + "'", "",
      nearest.empty() ? "headroom help lists them" : "did you mean " + std::string(nearest) + "?"};
}

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> kVerbs{fit_verb(),   pack_verb(),   run_verb(),
                                        ops_verb(),   batch_verb(),  bench_verb(),
                                        study_verb(), models_verb(), devices_verb()};
  return kVerbs;
}

}  // namespace headroom::cli
